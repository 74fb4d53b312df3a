# SPDX-License-Identifier: Apache-2.0
"""Rescaling: the state of a checkpoint gets another number of partitions, in a micro-batch without input.

The micro-batch becomes valid with its commit. Until then, a crash leaves a planned batch with another number of
partitions than that of the newest committed batch, and files of states that no commit names. The next start drops
that batch, and goes on with the former partitions.
"""

from __future__ import annotations

import logging

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.spark_internals.store_files import (
    partition_folder,
    partitions_in,
    states_folder,
)
from statefun.sdk.errors import CheckpointError

logger = logging.getLogger("statefun")


def rescale_command(checkpoint: Folder, partitions: int) -> str:
    """Return the command that divides the state of a checkpoint into so many partitions."""
    return f"statefun rescale {checkpoint.shown} --state-partitions {partitions}"


def drop_planned(checkpoint: Folder) -> None:
    """Drop the batch that is planned and not committed, so that its input is planned again; call this while no query runs.

    For all sources, this is as if the run had ended just before it planned the batch.

    Raises:
        CheckpointError: if the checkpoint is in an object store. There, a JVM of the run that has planned the batch may
            still commit it.
    """
    log = CommitLog(checkpoint)
    newest = log.newest()
    if log.planned() > newest >= 0:
        if checkpoint.is_object_store:
            raise CheckpointError(
                f"the last run with checkpoint {checkpoint.shown} has planned batch {newest + 1} and not committed it; "
                "start the application, end it with statefun drain, and repeat this"
            )
        # Before the plan, and so before another batch of this number can make these effects valid.
        Outbox(checkpoint).remove(newest + 1)
        log.withdraw(newest + 1)


def clear_rescaling(checkpoint: Folder) -> None:
    """Drop a rescaling that a crash has interrupted, and delete the partitions that no newer batch uses.

    Call this before a run, while no query uses the checkpoint.
    """
    log = CommitLog(checkpoint)
    newest, planned = log.newest(), log.planned()
    if newest < 0:
        return
    partitions = log.state_partitions(newest)
    if partitions is None:
        return
    if planned > newest and log.state_partitions(planned) != partitions:
        logger.warning(
            "the rescaling of checkpoint %s to %s partitions was interrupted, and is dropped: the state still has %d "
            "partitions",
            checkpoint.shown,
            log.state_partitions(planned),
            partitions,
        )
        drop_planned(checkpoint)
    for number in partitions_in(checkpoint.child(states_folder()).names()):
        if number >= partitions:
            checkpoint.child(partition_folder(number)).remove_all()
