# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, whether a run with another copy of the checkpoint has published to its egresses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from statefun.module.findings import Finding
from statefun.module.model import DeliverySemantic, KafkaEgress, Module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_runs import Runs
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.egress.lane import UncertainError
from statefun.runtime.egress.progress_topic import ProgressTopic
from statefun.sdk.errors import CheckpointError, KafkaError


def marker_findings(checkpoint: Folder, module: Module, timeout: timedelta) -> Iterator[Finding]:
    """Yield an error for each exactly-once egress that has published records which the checkpoint does not have.

    A run with another copy of the checkpoint has published them, so a run with this one must not publish to the
    egress. If a cluster does not show what is published, the finding is a warning.

    Args:
        checkpoint: the checkpoint of the application.
        module: the module of the application.
        timeout: how long a cluster may take to answer.
    """
    query_id = CommitLog(checkpoint).query_id()
    if not query_id:
        return
    for egress in module.egresses:
        if egress.delivery_semantic is DeliverySemantic.EXACTLY_ONCE:
            try:
                _check_markers(checkpoint, egress, ProgressTopic(egress, query_id), timeout)
            except CheckpointError as error:
                yield Finding.at(egress.location, f"{egress.label}: {error.message}")
            except UncertainError as error:
                text = f"{egress.label}: the published records cannot be determined: {error}"
                yield Finding.at(egress.location, text, is_error=False)
            except KafkaError:  # cluster_findings reports it
                continue


def _check_markers(
    checkpoint: Folder, egress: KafkaEgress, topic: ProgressTopic, timeout: timedelta
) -> None:
    publishers = Runs(checkpoint, "", [str(egress.id)]).earlier
    for lane in range(topic.lanes(timeout)):
        marker = topic.read(lane)
        if marker is not None:
            marker.is_ours(publishers, CommitLog(checkpoint), Outbox(checkpoint))
