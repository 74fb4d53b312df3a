# SPDX-License-Identifier: Apache-2.0
"""An application: functions and modules, run as one streaming query."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from datetime import timedelta
from functools import reduce

from py4j.protocol import Py4JError
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from statefun.module.model import Module, OnDataLoss
from statefun.protocol.runtime_pb2 import Manifest, Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.ingress_order import in_order
from statefun.runtime.checkpoint.lock import checkpoint_lock, create_privately, jvm_lock
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.dispatch.announcement import Announcement, announce
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload, Program
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.ingress.data_loss import check_kept
from statefun.runtime.ingress.declared import all_ingresses
from statefun.runtime.ingress.feedback import read_feedback
from statefun.runtime.ingress.flood import FloodGauge
from statefun.runtime.ingress.identities import NewTopics, check_identities
from statefun.runtime.ingress.kafka_source import read_kafka
from statefun.runtime.ingress.starting_offsets import check_topics, starting_offsets
from statefun.runtime.ingress.stopping import Bounds
from statefun.runtime.ingress.watch import IngressWatch
from statefun.runtime.kafka.topics import check_at_start
from statefun.runtime.preflight.binding import check_binding
from statefun.runtime.preflight.recovery import Succession, check_logs, take_over
from statefun.runtime.preflight.unregistered import check_functions
from statefun.runtime.release.delivery import Delivery
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.metrics import Metrics
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention, check_retained
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import (
    can_dispatch_arrow,
    is_local,
    keep_checkpoint_locally,
    open_session,
)
from statefun.runtime.spark.shipping import import_paths, lacks_statefun, send_modules
from statefun.runtime.status import Status
from statefun.runtime.summary import FailureLog, Summary
from statefun.runtime.terminal import StatusLine
from statefun.runtime.timers.clock import Clock, JumpLog, SystemClock
from statefun.sdk import errors
from statefun.sdk.errors import (
    BindingError,
    CheckpointError,
    EngineError,
    KafkaError,
    StatefunError,
)
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions

logger = logging.getLogger("statefun")

_WATCH_SECONDS = 1
_CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark's error class for a log that already has the batch to write."""


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
        line: StatusLine | None = None,
    ) -> None:
        check_binding(module, functions)
        if settings.on_unregistered is OnFailure.DEAD_LETTER and module.dead_letters is None:
            raise BindingError("on-unregistered=dead-letter: no egress has a deadLetterTopic")
        self._clock = clock
        self._line = line
        self._module = module
        self._ingresses = list(all_ingresses(module))
        self._functions = functions
        self._settings = settings
        self._outbox = Outbox(settings.checkpoint)
        self._flood_gauge = FloodGauge(self._outbox)
        self._commit_log = CommitLog(settings.checkpoint)
        self._egresses = {str(egress.id): egress for egress in module.egresses}
        self._succession: Succession
        """Of the present run, as the next one."""
        self._delivery: Delivery
        self._stage_error: Exception | None = None
        self._stopping = threading.Event()
        self._summary = Summary()
        self._failure_log = FailureLog(self._summary)
        self._status: Status | None = None

    def run(self) -> Summary:
        """Run until everything is processed (available-now), a call of :meth:`stop`, or an error.

        Raises:
            StatefunError: if the run fails; the checkpoint stays as of the last committed batch.
            KeyboardInterrupt: if told to stop by a signal.
        """
        settings = self._settings
        create_privately(settings.checkpoint)
        with checkpoint_lock(settings.checkpoint) if settings.has_lock else nullcontext():
            check_logs(settings.checkpoint)
            take_over(settings.checkpoint)
            check_at_start(self._module.egresses, settings.kafka_timeout)
            self._ingresses = in_order(settings.checkpoint, self._ingresses)
            bounds = Bounds(settings.checkpoint, self._commit_log, self._ingresses)
            newest = self._commit_log.newest()
            self._succession = Succession(newest)
            leftovers = self._outbox.recover(newest)
            self._delivery = Delivery(settings.checkpoint)
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
                    publisher.drain(newest, self._stopping)
                    self._run_query(publisher, group_offsets, bounds, starts)
                    publisher.drain(self._commit_log.newest(), self._stopping)
                finally:
                    publisher.stop()
                    self._failure_log.tell(at_once=True)
                    self._tally(publisher)
            self._summary.next_timer = retention.next_timer()
        return self._summary

    def stop(self) -> None:
        """Let :meth:`run` end soon; may be called by a signal handler or another thread."""
        self._stopping.set()

    def is_stopping(self) -> bool:
        """Tell whether :meth:`stop` was called, or is about to be: Spark may get a signal first."""
        return self._stopping.wait(_WATCH_SECONDS)

    def _starting_offsets(self, bounds: Bounds) -> list[str]:
        """Return the starting offsets of Spark's sources; they count on a fresh checkpoint only."""
        timeout, newest = self._settings.kafka_timeout, self._commit_log.newest()
        partitions = [check_topics(ingress, timeout) for ingress in self._ingresses]
        is_fresh = self._commit_log.is_fresh()
        # Spark reads the offsets that were planned before the first commit, whatever is asked for.
        ends = [] if is_fresh else self._commit_log.end_offsets(max(newest, 0))[:-1]
        known = [offsets or {} for offsets in ends] or [{} for _ in self._ingresses]
        check_identities(self._settings.checkpoint, self._ingresses, partitions, known, timeout)
        if is_fresh:
            starts = [
                starting_offsets(ingress, there, timeout)
                for ingress, there in zip(self._ingresses, partitions, strict=True)
            ]
            return [json.dumps(start) for start in bounds.decide(partitions, starts, timeout)]
        bounds.decide(partitions, known, timeout)
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
        check_retained(session.conf)
        if settings.checkpoint.is_local:
            keep_checkpoint_locally(session)
        if settings.egress_lanes > 1:
            publisher.run_as_tasks(session.sparkContext)
        jvm = session._jvm  # noqa: SLF001 - py4j has no other door
        with jvm_lock(jvm, settings.checkpoint) if settings.has_lock else nullcontext():
            self._succession.check_start(self._commit_log.newest())
            self._follow_query(session, publisher, group_offsets, bounds, starts)

    def _follow_query(
        self,
        session: SparkSession,
        publisher: Publisher,
        group_offsets: GroupOffsets,
        bounds: Bounds,
        starts: list[str],
    ) -> None:
        settings = self._settings
        check_functions(session, settings.checkpoint, self._functions, settings.on_unregistered)
        ui = session.sparkContext.uiWebUrl
        status = Status(self._summary, self._ingresses, bounds.stops, self._line, ui)
        self._status = status
        metrics = Metrics(self._ingresses, bounds.stops, group_offsets, self._summary)
        new_topics = NewTopics(settings.checkpoint, self._ingresses)
        try:
            query = self._start_query(session, publisher, bounds, starts)
            count = len(self._functions)
            logger.info(
                "running %d function%s; checkpoint %s%s",
                count,
                "" if count == 1 else "s",
                settings.checkpoint.location,
                f"; Spark's UI {ui}" if ui else "",
            )
            watch = IngressWatch(self._ingresses)
            jumps = JumpLog(self._clock)
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
                progress = query.lastProgress
                metrics.update(progress)
                status.tell(progress)
                watch.look()
                jumps.look()
                new_topics.look()
        except StreamingQueryException as error:
            if self.is_stopping():
                raise KeyboardInterrupt from None
            raise self._reason(error, publisher) from error
        except BaseException:
            publisher.stop()  # or the stage that waits for it would never return
            _stop_all(session)
            raise
        finally:
            status.close()
            metrics.close()
            new_topics.look(at_once=True)

    def _start_query(
        self, session: SparkSession, publisher: Publisher, bounds: Bounds, starts: list[str]
    ) -> StreamingQuery:
        settings = self._settings
        # Side by side: Spark starts a process to read the description of the feedback source.
        with ThreadPoolExecutor(1) as thread:
            feedback = thread.submit(read_feedback, session, settings.checkpoint, self._clock)
            ingresses = [
                read_kafka(session, ingress, start, stops, settings.records_per_batch)
                for ingress, start, stops in zip(self._ingresses, starts, bounds.stops, strict=True)
            ]
        # The last one: where its offset is looked for in the log of offsets.
        sources = [*ingresses, feedback.result()]
        program = Program.of(self._functions, self._module, settings.on_unregistered)
        paths: tuple[str, ...] = ()
        if is_local(session):
            paths = import_paths()
        else:
            send_modules(session.sparkContext, self._functions)
        operator = Operator(
            Payload.of(program, paths),
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
            .queryName(session.sparkContext.appName or "statefun")
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
            # Spark matches the text of this exception against a regular expression that
            # overflows the JVM's stack on long ones, such as tracebacks.
            raise RuntimeError("the micro-batch was not staged") from None

    def _stage(self, frame: DataFrame, batch: int, publisher: Publisher, run_id: str) -> None:
        """Run the batch in a single action, as Spark requires, and make its effects durable."""
        is_first = self._succession.check(batch)
        if is_first and self._settings.has_lock:  # no other driver can commit it any more
            self._outbox.remove(batch)
        announcement = Announcement(self._clock.now(), self._delivery.delivered_before(batch))
        announce(frame.sparkSession.sparkContext, announcement)
        outcomes = [Outcome.FromString(bytes(row.outcome)) for row in frame.collect()]
        for outcome in outcomes:
            if outcome.HasField("failure"):
                reason = errors.by_code(outcome.failure.code)(outcome.failure.message)
                reason.details = outcome.failure.traceback
                raise reason  # ends the query before the batch is committed
        segments = [outcome.segment for outcome in outcomes if outcome.HasField("segment")]
        if segments:
            manifest = Manifest(
                batch=batch,
                query_id=self._commit_log.query_id(),
                run_id=run_id,
                segments=segments,
                lanes=self._settings.egress_lanes,
            )
            self._flood_gauge.look(manifest)
            self._outbox.stage(manifest)
        elif is_first:
            self._outbox.remove(batch)  # effects that another driver has staged and not committed
        publisher.add(batch)
        if self._status is not None:
            self._status.staged(batch)
        self._summary.batches += 1
        for outcome in outcomes:
            self._summary.invocations += outcome.invocations
            self._failure_log.add(outcome)

    def _tally(self, publisher: Publisher) -> None:
        self._summary.egress_records = publisher.records
        self._summary.refused = publisher.refused

    def _reason(self, error: StreamingQueryException, publisher: Publisher) -> StatefunError:
        """Return the query's failure as an error of statefun."""
        cause = self._stage_error or publisher.error or error
        if _CONCURRENT in str(cause):
            return CheckpointError(
                f"Spark could not write its logs in checkpoint {self._settings.checkpoint.location}: "
                "another driver, or what is left of one, writes them, too; see to it that it has "
                "ended, and restore the checkpoint from a copy"
            )
        if isinstance(cause, StatefunError):
            return cause
        if lacking := lacks_statefun(str(cause)):
            return lacking
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
        # An exception of a Python worker comes with its traceback, and the error itself last.
        text = lines[-1] if isinstance(cause, PythonException) else lines[0]
        return EngineError(
            f"the streaming query has ended: {text}; run with spark.statefun.debug=true to see "
            "what Spark says"
        )


def _stop_all(session: SparkSession) -> None:
    """Stop the queries of a session, also a query that was interrupted during its start."""
    try:
        for query in session.streams.active:
            query.stop()
    except (Py4JError, OSError):
        logger.debug("Spark has stopped already", exc_info=True)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (Py4JError, OSError):
        logger.debug("Spark has stopped already", exc_info=True)
