# SPDX-License-Identifier: Apache-2.0
"""Egresses that module files no longer declare, while the outbox still has records for them."""

from __future__ import annotations

from collections.abc import Collection

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.sdk.errors import CheckpointError


def undeclared_egress(egress: str) -> CheckpointError:
    """Return the error about records for an egress that is not declared; the records stay in the outbox."""
    return CheckpointError(
        f"the outbox has records for egress {egress}, which module.yaml no longer declares; declare the egress until "
        "its records are published"
    )


def undeclared_egresses(checkpoint: Folder, declared: Collection[str]) -> list[str]:
    """Return the egresses besides the declared ones for which committed micro-batches have unpublished records.

    Args:
        checkpoint: the checkpoint of an application that does not run now.
        declared: the ids of the declared egresses.

    Raises:
        CheckpointError: if a file of the outbox is damaged.
    """
    newest, outbox = CommitLog(checkpoint).newest(), Outbox(checkpoint)
    found = set()
    for batch in outbox.batches():
        if batch <= newest and not outbox.is_published(batch):
            staged = outbox.staged(batch)
            if staged is not None:
                found |= {each for each in staged.egresses if staged.total(each)}
    return sorted(found.difference(declared))
