# SPDX-License-Identifier: Apache-2.0
"""Collects the findings about what an application uses: clusters, other servers and a checkpoint."""

from __future__ import annotations

from datetime import timedelta

from statefun.inspect.clusters import cluster_findings, position_findings
from statefun.inspect.connector_checks import connector_findings
from statefun.inspect.endpoint_checks import endpoint_findings
from statefun.inspect.published_markers import marker_findings
from statefun.inspect.stored_findings import checkpoint_findings
from statefun.module.findings import Finding
from statefun.module.model import Module
from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.functions import StatefulFunctions

_PATIENCE = timedelta(seconds=15)
"""How long to wait for the answer of a cluster or another server."""


def outside_findings(
    module: Module, functions: StatefulFunctions | None, location: str | None, *, connects: bool
) -> list[Finding]:
    """Return the findings about clusters, other servers and the checkpoint.

    Args:
        module: the declarations of the application's module files.
        functions: the application's functions; None if no program was given.
        location: the folder of a checkpoint, or its URI; None if there is none to compare with.
        connects: whether clusters and other servers are asked.

    Raises:
        StatefunError: if a check cannot be made.
    """
    findings: list[Finding] = []
    if connects:
        findings += cluster_findings(module, _PATIENCE)
        findings += connector_findings(module, _PATIENCE)
        findings += endpoint_findings(module, functions)
    if location:
        checkpoint = Folder.at(location)
        findings += checkpoint_findings(checkpoint, module, functions)
        if connects:
            findings += position_findings(checkpoint, module, _PATIENCE)
            findings += marker_findings(checkpoint, module, _PATIENCE)
    return findings
