# SPDX-License-Identifier: Apache-2.0
"""Makes a new checkpoint with a given state.

First, a query with the application's operator commits a micro-batch 0 without rows: so the new checkpoint has
everything that Spark writes at a first start. A micro-batch 1 then replaces the state. The file with the order of the
ingresses is written last: a start refuses a checkpoint that does not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import attrs
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from statefun.engine.clock import SystemClock
from statefun.engine.program import Program
from statefun.engine.watermark import EventProgress
from statefun.module.model import Module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import (
    INCOMPLETE,
    IngressOrder,
    SourceOffset,
    check_format,
)
from statefun.runtime.checkpoint.lock import can_lock, checkpoint_lock, create_privately
from statefun.runtime.checkpoint.spark_location import spark_location
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.ingress.feedback_offset import FeedbackOffset
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.runtime.spark_internals.driver_source import StillSource, planned_tasks
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError
from statefun.runtime.spark_internals.state_writer import write_states
from statefun.runtime.spark_internals.versions import check_writes_states
from statefun.sdk.errors import CheckpointError, ConfigurationError
from statefun.sdk.functions import StatefulFunctions

_SOURCE = "statefun-new-checkpoint"
_SPARKS_SOURCES = "sources"


@attrs.frozen
class Beginning:
    """Where the application of a new checkpoint begins."""

    ends: Mapping[str, SourceOffset | None] = attrs.field(factory=dict)
    """The next offsets to read, by the names of the ingresses; other ingresses begin at their startup positions."""
    topics: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """The topics that these ingresses have declared."""
    removed: Mapping[str, SourceOffset | None] = attrs.field(factory=dict)
    """The next offsets of ingresses that are no longer declared."""
    tick: int = -1
    """The number of the newest timer tick whose buckets have been opened; -1 if there are no timers."""
    event: Mapping[str, Any] | None = None
    """The progress of event time, encoded; None if there is none."""
    opened: int | None = None
    """As :attr:`FeedbackOffset.opened`."""

    @property
    def feedback(self) -> dict[str, Any]:
        """The encoded offset at which the feedback source begins."""
        event = None if self.event is None else EventProgress.decode(self.event)
        return FeedbackOffset(tick=self.tick, event=event, opened=self.opened).encode()


@contextmanager
def empty_checkpoint(checkpoint: Folder) -> Iterator[None]:
    """Lock a new checkpoint during the block, and mark it as not complete until :func:`complete_checkpoint`.

    If the block refuses its arguments with a ConfigurationError, it has to leave the folder empty.

    Raises:
        ConfigurationError: if the folder has files already.
        CheckpointError: if an interrupted program has left an incomplete checkpoint.
        PlatformError: if the installed Spark cannot write states.
    """
    check_writes_states()
    check_format(checkpoint)
    if checkpoint.names():
        raise ConfigurationError(
            f"{checkpoint.shown} has files: give an empty folder, or one that does not exist"
        )
    create_privately(checkpoint)
    with checkpoint_lock(checkpoint) if can_lock(checkpoint) else nullcontext():
        checkpoint.write(INCOMPLETE, b"")
        try:
            yield
        except ConfigurationError:
            checkpoint.remove(INCOMPLETE)
            raise


def begin_checkpoint(session: SparkSession, checkpoint: Folder) -> None:
    """Commit a micro-batch 0 without rows in a new checkpoint.

    Args:
        session: a session for an application's query: its settings say how to write to the checkpoint's storage, and
            how many state partitions there are.
        checkpoint: the checkpoint, which has only the files of its lock.
    """
    tasks = planned_tasks(session, _SOURCE, StillSource(), lambda _: None)
    program = Program.of(StatefulFunctions(), Module())
    operator = Operator(
        Payload.of(program), SegmentWriter(checkpoint), 1, 1, SystemClock(), arrow=False
    )
    query = (
        dispatch(tasks.mapInArrow(_no_rows, ROW_SCHEMA), operator, {})
        .writeStream.foreachBatch(_run)
        .option("checkpointLocation", checkpoint.spark_uri)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    checkpoint.child(_SPARKS_SOURCES).remove_all()


def complete_checkpoint(
    session: SparkSession, checkpoint: Folder, states: DataFrame, beginning: Beginning
) -> int:
    """Commit a micro-batch 1 with a state, and make the checkpoint valid.

    Args:
        session: the session of :func:`begin_checkpoint`.
        checkpoint: the checkpoint.
        states: the keys of addresses and their states, serialized as ``AddressState``; no key occurs twice.
        beginning: where the application begins.

    Returns:
        The number of the micro-batch.

    Raises:
        CheckpointError: if Spark cannot write the state.
    """
    log = CommitLog(checkpoint)
    log.rewrite_sources({0: [*beginning.ends.values(), beginning.feedback]})
    batch, partitions = log.plan_again(0), len(log.state_ids(0))
    try:
        with spark_location(checkpoint) as location:
            ids = write_states(
                session,
                location,
                states,
                key="target",
                like=0,
                batch=batch,
                partitions=partitions,
            )
    except (PySparkException, JvmError) as error:
        raise CheckpointError(
            f"the state of the new checkpoint {checkpoint.shown} cannot be written: {first_words(error)}"
        ) from error
    log.commit(batch, ids)
    order = IngressOrder([*beginning.ends], dict(beginning.removed), dict(beginning.topics))
    order.write(checkpoint)
    checkpoint.remove(INCOMPLETE)
    return batch


def _no_rows(_tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read nothing; there are no tasks."""
    return iter(())


def _run(frame: DataFrame, _batch: int) -> None:
    """Compute the rows of a micro-batch, which has no effects to stage."""
    frame.collect()
