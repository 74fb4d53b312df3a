# SPDX-License-Identifier: Apache-2.0
"""Prepares a checkpoint for a command that commits a micro-batch of its own, such as a rescaling or a repair."""

from __future__ import annotations

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_changes import finish_change
from statefun.runtime.checkpoint.rescaling import clear_rescaling, drop_planned
from statefun.runtime.ingress.holding import take_back_waiting


def drop_unfinished(checkpoint: Folder) -> None:
    """Finish changes that were interrupted, and drop the batch that is planned and not committed.

    Nothing of such a batch counts: its effects were never released, and the next run plans its input again. Call
    this while no query uses the checkpoint.

    Raises:
        CheckpointError: if such a batch is in a store.
    """
    log = CommitLog(checkpoint)
    log.finish_rewriting()
    clear_rescaling(checkpoint)
    finish_change(checkpoint)  # it may still have to change the batch that is dropped
    take_back_waiting(checkpoint, log.newest())
    drop_planned(checkpoint)


def finish_changes(checkpoint: Folder) -> None:
    """Finish changes that were interrupted, and keep a planned batch; call this while no query uses the checkpoint."""
    CommitLog(checkpoint).finish_rewriting()
    finish_change(checkpoint)
