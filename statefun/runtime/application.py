# SPDX-License-Identifier: Apache-2.0
"""An application: functions and modules, run as one streaming query."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from contextlib import closing
from datetime import timedelta
from functools import reduce

from py4j.protocol import Py4JError
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from statefun.protocol.runtime_pb2 import Manifest, Outcome
from statefun.runtime.binding import check_binding
from statefun.runtime.clock import Clock, SystemClock
from statefun.runtime.commit_log import CommitLog
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload, Program
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.egress.publisher import Publisher
from statefun.runtime.feedback import read_feedback
from statefun.runtime.ingress.data_loss import check_kept
from statefun.runtime.ingress.declared import all_ingresses
from statefun.runtime.ingress.group_offsets import GroupOffsets
from statefun.runtime.ingress.kafka import read_kafka
from statefun.runtime.ingress.startup import check_topics, starting_offsets
from statefun.runtime.ingress.stopping import Bounds
from statefun.runtime.ingress.watch import IngressWatch
from statefun.runtime.lock import checkpoint_lock
from statefun.runtime.metrics import Metrics
from statefun.runtime.outbox import Outbox
from statefun.runtime.retention import Retention
from statefun.runtime.session import can_dispatch_arrow, keep_checkpoint_locally, open_session
from statefun.runtime.settings import Settings
from statefun.runtime.sources import in_order
from statefun.runtime.summary import FailureLog, Summary
from statefun.sdk import errors
from statefun.sdk.errors import EngineError, KafkaError, StatefunError
from statefun.sdk.functions import StatefulFunctions
from statefun.spec.model import Module, OnDataLoss

logger = logging.getLogger("statefun")

_WATCH_SECONDS = 1


class Application:
    """Functions and modules that fit together.

    Raises:
        BindingError: if they do not.
    """

    def __init__(
        self,
        module: Module,
        functions: StatefulFunctions,
        settings: Settings,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        check_binding(module, functions)
        self._clock = clock
        self._module = module
        self._ingresses = list(all_ingresses(module))
        self._functions = functions
        self._settings = settings
        self._outbox = Outbox(settings.checkpoint)
        self._commit_log = CommitLog(settings.checkpoint)
        self._egresses = {str(egress.id): egress for egress in module.egresses}
        self._stage_error: Exception | None = None
        self._stopping = threading.Event()
        self._summary = Summary()
        self._failure_log = FailureLog(self._summary)

    def run(self) -> Summary:
        """Run until everything is processed (available-now), stopped, or an error occurs.

        Raises:
            StatefunError: what went wrong; the checkpoint stays as of the last committed batch.
            KeyboardInterrupt: if told to stop by a signal.
        """
        settings = self._settings
        with checkpoint_lock(settings.checkpoint):
            self._ingresses = in_order(settings.checkpoint, self._ingresses)
            bounds = Bounds(settings.checkpoint, self._commit_log, self._ingresses)
            newest = self._commit_log.newest()
            leftovers = self._outbox.recover(newest)
            starts = self._starting_offsets(bounds)
            retention = Retention(settings.checkpoint)
            group_offsets = GroupOffsets(self._ingresses, bounds.stops, self._commit_log)
            with closing(group_offsets):
                publisher = Publisher(self._egresses, settings, group_offsets, retention)
                if leftovers.unpublished:
                    logger.info(
                        "publishing %d batches that an earlier run had committed",
                        len(leftovers.unpublished),
                    )
                try:
                    publisher.start(leftovers)
                    publisher.drain(newest)
                    self._run_query(publisher, group_offsets, bounds, starts)
                    publisher.drain(self._commit_log.newest())
                finally:
                    publisher.stop()
                    self._failure_log.tell(at_once=True)
                    self._tally(publisher)
            self._summary.next_timer = retention.next_timer()
        return self._summary

    def stop(self) -> None:
        """Let :meth:`run` end soon; may be called by a signal handler or another thread."""
        self._stopping.set()

    def _starting_offsets(self, bounds: Bounds) -> list[str]:
        """Return where Spark's sources start, which it only heeds on a fresh checkpoint."""
        timeout, newest = self._settings.kafka_timeout, self._commit_log.newest()
        partitions = [check_topics(ingress, timeout) for ingress in self._ingresses]
        if self._commit_log.is_fresh():
            starts = [
                starting_offsets(ingress, there, timeout)
                for ingress, there in zip(self._ingresses, partitions, strict=True)
            ]
            return [json.dumps(start) for start in bounds.decide(partitions, starts, timeout)]
        # What is planned before the first commit will be read, whatever is asked for.
        known = self._commit_log.end_offsets(max(newest, 0))[:-1]
        bounds.decide(partitions, [offsets or {} for offsets in known], timeout)
        return ["latest"] * len(self._ingresses)

    def _run_query(
        self,
        publisher: Publisher,
        group_offsets: GroupOffsets,
        bounds: Bounds,
        starts: list[str],
    ) -> None:
        settings = self._settings
        session = open_session(debug=settings.debug, state_partitions=settings.state_partitions)
        if settings.checkpoint.is_local:
            keep_checkpoint_locally(session)
        if settings.egress_lanes > 1:
            publisher.run_as_tasks(session.sparkContext)
        query = self._start_query(session, publisher, bounds, starts)
        logger.info(
            "running %d functions; checkpoint %s",
            len(self._functions),
            settings.checkpoint.location,
        )
        metrics = Metrics(self._ingresses, bounds.stops, group_offsets, self._summary)
        try:
            watch = IngressWatch(self._ingresses)
            metrics.open(session)
            while not query.awaitTermination(timeout=_WATCH_SECONDS):
                if publisher.error is not None:
                    raise publisher.error
                if self._stopping.is_set():
                    raise KeyboardInterrupt
                if bounds.are_reached():
                    _stop(query)
                    return
                self._failure_log.tell()
                self._tally(publisher)
                metrics.update(query.lastProgress)
                watch.look()
        except StreamingQueryException as error:
            raise self._reason(error, publisher) from error
        except BaseException:
            publisher.stop()  # or the stage that waits for it would never return
            _stop(query)
            raise
        finally:
            metrics.close()

    def _start_query(
        self, session: SparkSession, publisher: Publisher, bounds: Bounds, starts: list[str]
    ) -> StreamingQuery:
        settings = self._settings
        ingresses = [
            read_kafka(session, ingress, start, stops, settings.records_per_batch)
            for ingress, start, stops in zip(self._ingresses, starts, bounds.stops, strict=True)
        ]
        # The last one: where its offset is looked for in the log of offsets.
        sources = [*ingresses, read_feedback(session, settings.checkpoint, self._clock)]
        operator = Operator(
            Payload.of(Program.of(self._functions, self._module)),
            SegmentWriter(settings.checkpoint),
            settings.async_concurrency,
            settings.immediate_messages,
            self._clock,
            arrow=settings.dispatch == "arrow" and can_dispatch_arrow(session),
        )
        run_id = uuid.uuid4().hex
        writer = (
            dispatch(reduce(DataFrame.unionAll, sources), operator)
            .writeStream.foreachBatch(
                lambda frame, batch: self._try_to_stage(frame, batch, publisher, run_id)
            )
            .option("checkpointLocation", settings.checkpoint.spark_uri)
        )
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            millis = round(settings.trigger / timedelta(milliseconds=1))
            writer = writer.trigger(processingTime=f"{millis} milliseconds")
        return writer.start()

    def _try_to_stage(
        self, frame: DataFrame, batch: int, publisher: Publisher, run_id: str
    ) -> None:
        try:
            self._stage(frame, batch, publisher, run_id)
        except Exception as error:  # noqa: BLE001 - all of them are reported, by _reason
            self._stage_error = error
            # Spark matches the text of what is raised here against a regular expression that
            # overflows the JVM's stack on long ones, such as tracebacks.
            raise RuntimeError("the micro-batch was not staged") from None

    def _stage(self, frame: DataFrame, batch: int, publisher: Publisher, run_id: str) -> None:
        """Run the batch, in the one action that is allowed, and make its effects durable."""
        outcomes = [Outcome.FromString(bytes(row.outcome)) for row in frame.collect()]
        for outcome in outcomes:
            if outcome.HasField("failure"):
                reason = errors.by_code(outcome.failure.code)(outcome.failure.message)
                reason.details = outcome.failure.traceback
                raise reason  # ends the query before the batch is committed
        segments = [outcome.segment for outcome in outcomes if outcome.HasField("segment")]
        if segments:
            self._outbox.stage(
                Manifest(
                    batch=batch,
                    query_id=self._commit_log.query_id(),
                    run_id=run_id,
                    segments=segments,
                    lanes=self._settings.egress_lanes,
                )
            )
        publisher.add(batch)
        self._summary.batches += 1
        for outcome in outcomes:
            self._summary.invocations += outcome.invocations
            self._failure_log.add(outcome)

    def _tally(self, publisher: Publisher) -> None:
        self._summary.egress_records = publisher.records
        self._summary.refused = publisher.refused

    def _reason(self, error: StreamingQueryException, publisher: Publisher) -> StatefunError:
        """Say in statefun's words why the query has ended."""
        cause = self._stage_error or publisher.error or error
        if isinstance(cause, StatefunError):
            return cause
        try:  # the likeliest reason from outside, which Spark names by its inner workings
            for ingress in self._ingresses:
                check_topics(ingress, self._settings.kafka_timeout)
            newest = self._commit_log.newest()
            read = self._commit_log.end_offsets(newest) if newest >= 0 else []
            for ingress, offsets in zip(self._ingresses, read, strict=False):
                if ingress.on_data_loss is OnDataLoss.FAIL:
                    check_kept(ingress, offsets or {}, self._settings.kafka_timeout)
        except KafkaError as unreachable:
            return unreachable
        lines = str(cause).strip().splitlines() or [repr(cause)]
        # What a Python worker raised comes with its traceback, and the error itself last.
        text = lines[-1] if isinstance(cause, PythonException) else lines[0]
        return EngineError(
            f"the streaming query has ended: {text}; run with spark.statefun.debug=true to see "
            "what Spark says"
        )


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (Py4JError, OSError):
        logger.debug("Spark has stopped already", exc_info=True)
