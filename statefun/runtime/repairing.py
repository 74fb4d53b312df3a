# SPDX-License-Identifier: Apache-2.0
"""Applies repairs to a checkpoint whose application is stopped: one more micro-batch, which reads no ingress.

The query is the application's: its sources, its operator and its state, so Spark itself commits the batch. But
the sources of ingresses stay where they are, the feedback source delivers the repairs alone, and the operator
knows no functions.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from functools import reduce

import attrs
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from statefun.engine.clock import Clock, SystemClock
from statefun.engine.program import Program
from statefun.protocol.runtime_pb2 import Manifest, Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.checkpoint.lock import jvm_lock
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.repair_log import REPAIRS_INBOX, RepairLog
from statefun.runtime.dispatch.announcement import Announcement, announce
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.ingress.feedback import read_feedback
from statefun.runtime.ingress.feedback_offset import FeedbackOffset, feedback_offset
from statefun.runtime.ingress.feedback_tasks import FeedbackTasks
from statefun.runtime.preflight.dropping import drop_unfinished
from statefun.runtime.preflight.recovery import check_logs
from statefun.runtime.spark.session import (
    dispatches_arrow,
    open_session,
    use_checkpoint,
)
from statefun.runtime.spark.shipping import import_paths
from statefun.runtime.spark_internals.driver_source import Offset, StillSource
from statefun.runtime.spark_internals.jvm import jvm
from statefun.sdk.errors import restored
from statefun.sdk.functions import StatefulFunctions


def prepare_repair(checkpoint: Folder) -> None:
    """Start Spark, check the logs of a checkpoint, and drop a batch that an ended run has not committed.

    The next run reads the input of this batch again, after the repair: without the repair, it might fail on this input.

    Args:
        checkpoint: a checkpoint that no run uses.

    Raises:
        CheckpointError: if the logs contradict each other, or a file is missing.
    """
    log = CommitLog(checkpoint)
    check_logs(checkpoint)
    _session(log)
    drop_unfinished(checkpoint)
    log.check_sources(len(IngressOrder.read(checkpoint).names) + 1)


def apply_repairs(checkpoint: Folder, repairs: RepairLog, *, has_lock: bool) -> int:
    """Apply the accepted repairs in one more micro-batch, and return its number.

    Args:
        checkpoint: a checkpoint that no run uses, and in which no batch is planned and not committed.
        repairs: the repairs of the checkpoint.
        has_lock: whether this process has locked the checkpoint.

    Raises:
        StatefunError: if the batch cannot be committed; the repairs stay accepted then.
    """
    log = CommitLog(checkpoint)
    session = _session(log)
    run = uuid.uuid4().hex
    use_checkpoint(session, checkpoint, run)
    with jvm_lock(jvm(), checkpoint) if has_lock else nullcontext():
        _Query(session, checkpoint, repairs, run).run()
    batch = log.newest()
    log.sync(batch)
    repairs.forget(feedback_offset(log, batch).last_of(REPAIRS_INBOX))
    return batch


def _session(log: CommitLog) -> SparkSession:
    return open_session(
        debug=False, state_partitions=log.state_partitions(log.planned()), kafka=False
    )


class _Query:
    """The application's query with sources that deliver repairs alone."""

    def __init__(
        self, session: SparkSession, checkpoint: Folder, repairs: RepairLog, run: str
    ) -> None:
        self._session = session
        self._checkpoint = checkpoint
        self._repairs = repairs
        self._run = run
        self._clock: Clock = SystemClock()
        self._error: Exception | None = None

    def run(self) -> None:
        """Run the query until the batch is committed."""
        operator = Operator(
            Payload.of(Program(StatefulFunctions(), {}), import_paths()),
            SegmentWriter(self._checkpoint),
            concurrency=1,
            immediate=0,
            clock=self._clock,
            arrow=dispatches_arrow(self._session, "arrow"),
        )
        query = (
            dispatch(self._rows(), operator, {})
            .writeStream.foreachBatch(self._stage)
            .option("checkpointLocation", self._checkpoint.spark_uri)
            .queryName("statefun repair")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if self._error is not None:
                raise self._error from None
            raise
        finally:
            query.stop()

    def _rows(self) -> DataFrame:
        ingresses = IngressOrder.read(self._checkpoint).names
        sources = [*(StillSource() for _ in ingresses), _RepairReader(self._repairs)]
        rows = [
            read_feedback(self._session, self._checkpoint, source, self._fail) for source in sources
        ]
        return reduce(DataFrame.unionAll, rows)

    def _fail(self, error: Exception) -> None:
        self._error = error

    def _stage(self, frame: DataFrame, batch: int) -> None:
        """Compute the batch, and stage its only effects: wake-ups of addresses whose values expire."""
        announce(self._session.sparkContext, Announcement(self._clock.now(), None))
        outcomes = [Outcome.FromString(bytes(row.outcome)) for row in frame.collect()]
        for outcome in outcomes:
            if outcome.HasField("failure"):
                self._fail(restored(outcome.failure.code, outcome.failure.message))
                raise RuntimeError("the micro-batch was not staged; statefun's error says why")
        segments = [outcome.segment for outcome in outcomes if outcome.HasField("segment")]
        if segments:
            query_id = CommitLog(self._checkpoint).query_id()
            manifest = Manifest(
                batch=batch, query_id=query_id, run_id=self._run, segments=segments, lanes=1
            )
            Outbox(self._checkpoint).stage(manifest)


class _RepairReader(StillSource):
    """The feedback source, which delivers repairs, and neither messages between functions nor ticks."""

    def __init__(self, repairs: RepairLog) -> None:
        self._repairs = repairs

    def initial_offset(self) -> Offset:
        return FeedbackOffset().encode()

    def latest_offset(self, start: Offset) -> Offset:
        before = FeedbackOffset.decode(start)
        last = self._repairs.readable(before.last_of(REPAIRS_INBOX))
        inboxes = {**before.inboxes, REPAIRS_INBOX: last}
        return attrs.evolve(before, inboxes=inboxes).encode()

    def tasks(self, start: Offset, end: Offset) -> Sequence[bytes]:
        first, last = (FeedbackOffset.decode(each).last_of(REPAIRS_INBOX) for each in (start, end))
        tasks = FeedbackTasks()
        tasks.add_accepted(self._repairs.messages(first, last))
        return tasks.encoded()
