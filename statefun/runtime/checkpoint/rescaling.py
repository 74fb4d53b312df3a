# SPDX-License-Identifier: Apache-2.0
"""Rescaling: the state of a checkpoint gets another number of partitions, in a micro-batch without input.

The micro-batch becomes valid with its commit. Until then, a crash leaves a planned batch with another number of
partitions than that of the newest committed batch, and files of states that no commit names. The next start drops
that batch, and goes on with the former partitions.

In a store, no lock shows that the JVM of the command has ended, which may still commit the batch. There the batch
is not dropped, but finished, by the same command: whichever JVM commits it first, the state is the same.
"""

from __future__ import annotations

import logging

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.trace_log import TraceLog
from statefun.runtime.spark_internals.store_files import (
    partition_folder,
    partitions_in,
    states_folder,
)
from statefun.sdk.errors import CheckpointError

logger = logging.getLogger("statefun")


def rescale_command(checkpoint: Folder, partitions: int) -> str:
    """Return the command that divides the state of a checkpoint into ``partitions`` partitions."""
    return f"statefun rescale {checkpoint.shown} --state-partitions {partitions}"


def drop_planned(checkpoint: Folder) -> None:
    """Drop the batch that is planned and not committed, so that its input is planned again.

    For all sources, this is as if the run had ended just before it planned the batch. Call this while no query runs.

    Raises:
        CheckpointError: if the checkpoint is in a store. There, a JVM of the run that has planned the batch may
            still commit it.
    """
    log = CommitLog(checkpoint)
    newest = log.newest()
    if log.planned() > newest >= 0:
        if checkpoint.is_store:
            raise CheckpointError(
                f"the last run with checkpoint {checkpoint.shown} has planned batch {newest + 1} and not committed it; "
                "start the application, end it with statefun drain, and repeat this"
            )
        # Before the plan, and so before another batch of this number can make these effects valid.
        Outbox(checkpoint).remove(newest + 1)
        TraceLog(checkpoint, 0).drop(newest + 1)
        log.withdraw(newest + 1)


def interrupted_rescaling(checkpoint: Folder) -> int | None:
    """Return into how many partitions an interrupted rescaling divides the state; None if there is none."""
    log = CommitLog(checkpoint)
    newest, planned = log.newest(), log.planned()
    if not planned > newest >= 0:
        return None
    before, after = log.state_partitions(newest), log.state_partitions(planned)
    return None if before in {None, after} else after


def clear_rescaling(checkpoint: Folder) -> None:
    """Drop a rescaling that a crash has interrupted, and delete the partitions that no newer batch uses.

    Call this before a run, while no query uses the checkpoint.

    Raises:
        CheckpointError: if a rescaling was interrupted in a store, where it has to be finished.
    """
    log = CommitLog(checkpoint)
    newest = log.newest()
    partitions = log.state_partitions(newest) if newest >= 0 else None
    if partitions is None:
        return
    interrupted = interrupted_rescaling(checkpoint)
    if interrupted is not None:
        if checkpoint.is_store:
            raise CheckpointError(
                f"the rescaling of checkpoint {checkpoint.shown} to {interrupted} partitions was interrupted; to finish it: "
                f"{rescale_command(checkpoint, interrupted)}"
            )
        logger.warning(
            "the rescaling of checkpoint %s to %d partitions was interrupted, and is dropped: the state still has %d "
            "partitions",
            checkpoint.shown,
            interrupted,
            partitions,
        )
        drop_planned(checkpoint)
    for number in partitions_in(checkpoint.child(states_folder()).names()):
        if number >= partitions:
            checkpoint.child(partition_folder(number)).remove_all()
