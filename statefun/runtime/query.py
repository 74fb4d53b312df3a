# SPDX-License-Identifier: Apache-2.0
"""The one streaming query of an application: its sources, its sink, and the step that calls functions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from statefun.engine.program import Program
from statefun.engine.renamed import stored_names
from statefun.module.connectors import ConnectorIngress
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.connector_folder import connector_folder
from statefun.runtime.checkpoint.inbox import Inbox
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.dispatch.worker_logs import LogLevels
from statefun.runtime.ingress.checked_reading import CheckedSource
from statefun.runtime.ingress.connector_source import Reading, read_connector
from statefun.runtime.ingress.event_watch import EventWatch
from statefun.runtime.ingress.feedback import FeedbackReader, read_feedback
from statefun.runtime.ingress.kafka_source import read_kafka
from statefun.runtime.ingress.stopping import Offsets, has_unread
from statefun.runtime.preflight.preparation import Prepared
from statefun.runtime.spark.session import dispatches_arrow, has_executors, is_local
from statefun.runtime.spark.shipping import import_paths, send_modules
from statefun.runtime.spark_internals.driver_source import Source
from statefun.runtime.spark_internals.jvm import JvmError
from statefun.runtime.spark_internals.logs import SPARKS_LOGGERS
from statefun.runtime.spark_internals.query_progress import learn_newest_offsets
from statefun.runtime.spark_internals.read_limits import limit_sources, newest_offsets
from statefun.runtime.staging import Staging
from statefun.sdk.times import in_milliseconds

logger = logging.getLogger("statefun")


class Query:
    """The query of a run. :meth:`stop` stops the sources of connectors first, because Spark waits for them.

    Args:
        session: the Spark session, in which no other query runs.
        definition: the application.
        prepared: the ingresses, and where they start and stop.
        inboxes: the inboxes, by their names in the offset of the feedback source.
        staging: stages each micro-batch, and keeps the exception if a micro-batch cannot be planned.
        calls: the address to which workers report about calls that go on after their micro-batches.
        control: has the parts that are paused; call :meth:`look` after a change.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a run
        self,
        session: SparkSession,
        definition: Definition,
        prepared: Prepared,
        inboxes: Mapping[str, Inbox],
        staging: Staging,
        calls: CallServerAddress,
        control: Control,
    ) -> None:
        self._session = session
        self._definition = definition
        self._settings = definition.settings
        self._prepared = prepared
        self._inboxes = inboxes
        self._staging = staging
        self._calls = calls
        self._control = control
        self._stream: StreamingQuery | None = None
        self._limits = self._wanted_limits()
        """How many records a micro-batch reads of each Kafka ingress at most, as the query knows it."""
        self._limiting = threading.Lock()
        self._feedback: FeedbackReader | None = None
        self._idle_from: int | None = None
        """The number of looks of the feedback source at the first call of :meth:`is_idle`."""
        self._sources: list[Source] = []
        """The sources of connectors and the feedback source, which the run must stop."""
        self._connectors: dict[str, CheckedSource] = {}
        """The sources that connectors have opened, by ingress."""
        self._has_staged = False
        self._limits_at_end = self._limits
        """The limits at the end of the last micro-batch."""

    def start(self) -> StreamingQuery:
        """Start the query: its operator calls the functions, and each micro-batch's effects are staged."""
        settings = self._settings
        writer = (
            dispatch(
                self._rows(),
                self._operator(),
                stored_names(self._definition.functions),
                has_event_times=bool(self._definition.module.event_times),
            )
            .writeStream.foreachBatch(self._stage)
            .option("checkpointLocation", settings.checkpoint.spark_uri)
            .queryName(self._session.sparkContext.appName or "statefun")
        )
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            millis = in_milliseconds(settings.trigger)
            writer = writer.trigger(processingTime=f"{millis} milliseconds")
        self._stream = writer.start()
        return self._stream

    def look(self) -> bool:
        """Let the next micro-batch read only from ingresses that are not paused, and nothing while reading is held.

        Returns:
            Whether the query knows what it may read; if not, call this again, since it is still starting.
        """
        with self._limiting:
            wanted = self._wanted_limits()
            if wanted == self._limits:
                return True
            if self._stream is None or not limit_sources(self._stream, wanted):
                return False
            self._limits = wanted
            return True

    @property
    def waiting_messages(self) -> int:
        """The number of messages that wait in the states of their addresses; not above zero if there are none."""
        return self._staging.waiting_gauge.messages

    def is_idle(self) -> bool:
        """Return whether no further micro-batch is needed; the ingresses must not be read any more at the first call.

        A micro-batch that was being planned at the first call may still read records. So the answer is True only after
        the feedback source has looked twice more, and has found nothing to deliver.
        """
        feedback = self._feedback
        if feedback is None:
            return False
        if self._idle_from is None:
            self._idle_from = feedback.looks
        return feedback.looks >= max(self._idle_from, feedback.busy_look) + 2

    def _wanted_limits(self) -> list[int]:
        """Return how many records the next micro-batch may read of each Kafka ingress."""
        most = self._settings.records_per_batch
        return [most if self._reads(str(each.id)) else 0 for each in self._prepared.ingresses]

    def _reads(self, ingress: str) -> bool:
        """Return whether the next micro-batch may read records of an ingress."""
        is_held = self._staging.holds_reading or self._prepared.bootstrap.holds(ingress)
        return self._control.reads(ingress) and not is_held

    def _waits_for_room(self) -> bool:
        """Return whether reading is held, and an ingress has records that the run would read otherwise."""
        if not self._staging.holds_reading:
            return False
        # Before the first micro-batch, sources may not have looked for their newest offsets.
        if self._stream is None or not self._has_staged:
            return True
        reads, connectors = self._control.reads, self._connectors.items()
        if self._has_unread(self._stream, self._read(), reads, unknown=True):
            return True
        return any(reads(name) and source.has_more() for name, source in connectors)

    def _reads_on(self) -> bool:
        """Return whether the micro-batch that is being planned in a bounded run reads records; False if unknown.

        If the answer is True and the micro-batch reads none, the run ends.
        """
        may_read = not self._staging.holds_reading and self._limits is self._limits_at_end
        if self._stream is None or not self._has_staged or not may_read:
            return False  # if somebody changes limits now, sources may have been asked before that
        read = self._read()
        if self._has_unread(self._stream, read, self._reads, unknown=False):
            return True
        return any(
            (source := self._connectors.get(str(ingress.id))) is not None and source.has_next(ends)
            for ingress, ends in zip(
                self._prepared.connectors, read[len(self._prepared.ingresses) :], strict=False
            )
        )

    def _read(self) -> Sequence[dict[str, Any] | None]:
        """Return the offsets up to which the planned micro-batches read the sources."""
        commit_log = CommitLog(self._settings.checkpoint)
        planned = commit_log.planned()
        return (
            commit_log.end_offsets(planned)
            if planned >= 0
            else [None] * len(self._prepared.ingresses)
        )

    def _has_unread(
        self,
        stream: StreamingQuery,
        read: Sequence[Offsets | None],
        reads: Callable[[str], bool],
        *,
        unknown: bool,
    ) -> bool:
        """Return whether a Kafka ingress has records that the bounded run has to read.

        Args:
            stream: the query.
            read: the offsets up to which the planned micro-batches read the sources.
            reads: returns whether an ingress is considered, given its id.
            unknown: the answer for an ingress that has not looked for its newest offsets yet.
        """
        prepared, ingresses = self._prepared, self._prepared.ingresses
        return any(
            reads(str(ingress.id))
            and (unknown if newest is None else has_unread(newest, ends, stops))
            for ingress, newest, ends, stops in zip(
                ingresses,
                newest_offsets(stream, len(ingresses)),
                read,
                prepared.bounds.stops,
                strict=False,
            )
        )

    def stop(self) -> None:
        """Stop the query and the sources of connectors, also if the query was interrupted during its start."""
        for source in self._sources:
            source.stop()
        try:
            for query in self._session.streams.active:
                query.stop()
        except (JvmError, OSError):
            logger.debug(
                "the query was not stopped, since Spark has stopped already", exc_info=True
            )

    def _stage(self, frame: DataFrame, batch: int) -> None:
        """Stage a batch when Spark's ``foreachBatch`` asks for it."""
        self._staging.try_to_stage(frame, batch)
        self.look()
        self._limits_at_end = self._limits
        if not self._has_staged:
            self._has_staged = True
            learn_newest_offsets(self._session)

    def _rows(self) -> DataFrame:
        """Return the rows of all ingresses, and of the feedback source."""
        prepared = self._prepared
        ingresses = [
            read_kafka(self._session, ingress, start, stops, limit)
            for ingress, start, stops, limit in zip(
                prepared.ingresses,
                prepared.starts,
                prepared.bounds.stops,
                self._limits,
                strict=True,
            )
        ]
        commit_log = CommitLog(self._settings.checkpoint)
        connectors = [
            read_connector(self._reading(ingress, commit_log, number))
            for number, ingress in enumerate(prepared.connectors, len(prepared.ingresses))
        ]
        # The feedback source is the last one: its offset is the last one in the log of offsets.
        checkpoint = self._settings.checkpoint
        clock, watch = self._definition.clock, None
        if self._definition.module.event_times:
            is_final = self._settings.final_watermark
            watch = EventWatch(
                checkpoint, prepared.ingresses, clock, lambda: self._limits, is_final=is_final
            )
        reader = FeedbackReader(
            checkpoint,
            clock,
            self._inboxes,
            watch,
            self._control.delivers,
            self._waits_for_room,
            self._reads_on,
            lambda: self._limits is not self._limits_at_end,
        )
        self._feedback = reader
        self._sources.append(reader)
        feedback = read_feedback(self._session, checkpoint, reader, self._staging.fail)
        return reduce(DataFrame.unionAll, [*ingresses, *connectors, feedback])

    def _reading(self, ingress: ConnectorIngress, commit_log: CommitLog, source: int) -> Reading:
        settings = self._settings
        return Reading(
            self._session,
            ingress,
            connector_folder(settings.checkpoint, ingress.id),
            settings.records_per_batch,
            settings.kafka_timeout,
            commit_log.is_fresh(source),
            partial(commit_log.settled, source),
            partial(self._opened, str(ingress.id)),
            self._staging.fail,
            partial(self._reads, str(ingress.id)),
        )

    def _opened(self, ingress: str, source: Source) -> None:
        self._sources.append(source)
        if isinstance(source, CheckedSource):
            self._connectors[ingress] = source

    def _operator(self) -> Operator:
        """Return the query's operator, which calls the functions; send their code to other machines."""
        session, settings, functions = self._session, self._settings, self._definition.functions
        program = Program.of(functions, self._definition.module, settings.on_unregistered)
        paths: tuple[str, ...] = ()
        if is_local(session):
            paths = import_paths()
        else:
            send_modules(session.sparkContext, functions)
        return Operator(
            Payload.of(program, paths),
            SegmentWriter(settings.checkpoint),
            settings.async_concurrency,
            settings.immediate_messages,
            self._definition.clock,
            arrow=dispatches_arrow(session, settings.dispatch),
            traces=settings.trace_share if settings.trace_journal else None,
            spans=settings.otlp_endpoint is not None,
            calls=self._calls,
            log_levels=LogLevels.of_program(
                leave_out=("statefun", *SPARKS_LOGGERS),
                as_json=settings.log_format == "json",
                for_driver=has_executors(session),
            ),
        )
