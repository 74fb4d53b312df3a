# SPDX-License-Identifier: Apache-2.0
"""Gives the state of a checkpoint another number of partitions, while its application does not run."""

from __future__ import annotations

from contextlib import nullcontext

import attrs
from pyspark.errors import PySparkException

from statefun.inspect.checkpoint_options import locked
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import jvm_lock
from statefun.runtime.checkpoint.rescaling import interrupted_rescaling
from statefun.runtime.checkpoint.spark_location import spark_location
from statefun.runtime.preflight.dropping import drop_unfinished, finish_changes
from statefun.runtime.preflight.recovery import check_logs
from statefun.runtime.spark.session import open_session, use_checkpoint
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError, jvm
from statefun.runtime.spark_internals.repartitioning import repartition
from statefun.runtime.spark_internals.versions import check_writes_states
from statefun.runtime.stored.committed_state import readable_batch
from statefun.sdk.errors import CheckpointError


@attrs.frozen
class Rescaled:
    """The numbers of partitions before and after a rescaling, and the micro-batch that has made the change."""

    before: int
    after: int
    batch: int


def rescale(checkpoint: Folder, partitions: int, *, has_lock: bool = True) -> Rescaled:
    """Divide the state of a checkpoint into another number of partitions; a crash leaves the old or the new state.

    In a store, a rescaling that was interrupted must be repeated with the same number before another number can
    be chosen.

    Effects that are not published yet stay in the outbox: the next start publishes them before its first micro-batch,
    through the lanes that their manifests name. So records of one sender keep their order, though the sender may
    get another lane.

    Args:
        checkpoint: the checkpoint of an application that does not run.
        partitions: the number of partitions.
        has_lock: whether to lock the checkpoint, so that no application can run with it meanwhile.

    Returns:
        What has changed; the numbers are equal if the state had this number of partitions already.

    Raises:
        ConfigurationError: if there is no checkpoint.
        PlatformError: if the installed Spark cannot change the number of partitions.
        CheckpointError: if an application runs with the checkpoint, no micro-batch is committed yet, the
            checkpoint is damaged, or a rescaling to another number was interrupted in a store.
    """
    check_writes_states()
    newest, before = _present(checkpoint)
    if before == partitions and interrupted_rescaling(checkpoint) is None:
        return Rescaled(before, before, newest)
    with locked(checkpoint, has_lock=has_lock) as guarded:
        newest, before = _present(checkpoint)
        log = CommitLog(checkpoint)
        if checkpoint.is_store and interrupted_rescaling(checkpoint) == partitions:
            finish_changes(guarded)
        else:
            drop_unfinished(guarded)
        if before == partitions:
            return Rescaled(before, before, newest)
        session = open_session(debug=False, state_partitions=None, kafka=False)
        use_checkpoint(session, checkpoint)
        try:
            with (
                jvm_lock(jvm(), checkpoint) if has_lock else nullcontext(),
                spark_location(checkpoint) as location,
            ):
                repartition(session, location, partitions)
        except (PySparkException, JvmError) as error:
            raise CheckpointError(
                f"the state in checkpoint {checkpoint.shown} cannot be divided into {partitions} partitions: "
                f"{first_words(error)}; it still has {before} partitions"
            ) from error
        log.sync(log.newest())
    return Rescaled(before, partitions, log.newest())


def _present(checkpoint: Folder) -> tuple[int, int]:
    """Return the number of the newest committed micro-batch, and the number of partitions of the state."""
    newest = readable_batch(checkpoint, None)
    check_logs(checkpoint)
    partitions = CommitLog(checkpoint).state_partitions(newest)
    if partitions is None:
        raise CheckpointError(
            f"{CommitLog(checkpoint).offsets_file(newest)} does not say into how many partitions the state is divided; "
            "restore the checkpoint from a copy"
        )
    return newest, partitions
