# SPDX-License-Identifier: Apache-2.0
"""An application: functions and modules, run as one streaming query."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext

import attrs
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from statefun.engine.clock import Clock, SystemClock
from statefun.module.binding import check_binding
from statefun.module.model import Module
from statefun.remote.endpoint_functions import with_endpoints
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.lock import (
    checkpoint_lock,
    create_privately,
    jvm_lock,
    unlocked,
)
from statefun.runtime.checkpoint.playground_store import FILE, PlaygroundStore
from statefun.runtime.egress.connector_lanes import ConnectorLaneFactory
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane_set import LaneFactory
from statefun.runtime.explanation import explained
from statefun.runtime.garbage import frozen
from statefun.runtime.ingress.feedback import accepted, feedback_offset
from statefun.runtime.playground_server import Playground
from statefun.runtime.preflight.preparation import Prepared, prepare
from statefun.runtime.preflight.unregistered import check_functions, write_functions
from statefun.runtime.query import joined_rows, operator_of, start_query
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention, check_retained
from statefun.runtime.reporting import Reports
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import keep_checkpoint_locally, open_session
from statefun.runtime.spark_internals.driver_source import Source
from statefun.runtime.spark_internals.jvm import JvmError, jvm
from statefun.runtime.staging import Staging
from statefun.runtime.summary import Summary
from statefun.runtime.terminal import StatusLine
from statefun.sdk.errors import BindingError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions

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
        line: StatusLine | None = None,
    ) -> None:
        functions = with_endpoints(functions, module)
        check_binding(module, functions)
        if settings.on_unregistered is OnFailure.DEAD_LETTER and module.dead_letters is None:
            raise BindingError("on-unregistered=dead-letter: no egress has a deadLetterTopic")
        self._module = module
        self._functions = functions
        self._settings = settings
        self._clock = clock
        self._line = line
        self._commit_log = CommitLog(settings.checkpoint)
        self._stopping = threading.Event()
        self._summary = Summary()
        self._sources: list[Source] = []

    def run(self) -> Summary:
        """Run until everything is processed (available-now), a call of :meth:`stop`, or an error.

        Raises:
            StatefunError: if the run fails; the checkpoint stays as of the last committed batch.
            KeyboardInterrupt: if told to stop by a signal.
        """
        settings = self._settings
        create_privately(settings.checkpoint)
        lock = checkpoint_lock if settings.has_lock else unlocked
        with lock(settings.checkpoint):
            prepared = prepare(self._module, settings)
            retention = Retention(settings.checkpoint)
            group_offsets = GroupOffsets(
                prepared.ingresses, prepared.bounds.stops, self._commit_log
            )
            with closing(group_offsets), frozen(), self._playground() as store:
                run = uuid.uuid4().hex
                factories = self._lane_factories(run)
                publisher = Publisher(run, factories, settings, group_offsets, retention)
                try:
                    self._publish_leftovers(publisher, prepared)
                    prepared = attrs.evolve(prepared, store=store)
                    self._run_query(publisher, group_offsets, prepared)
                    publisher.drain(self._commit_log.newest(), self._stopping)
                finally:
                    publisher.stop()
            publisher.tally(self._summary)
            self._summary.next_timer = retention.next_timer()
        return self._summary

    def stop(self) -> None:
        """Let :meth:`run` end soon; may be called by a signal handler or another thread."""
        self._stopping.set()

    def is_stopping(self) -> bool:
        """Return whether :meth:`stop` was called, or is about to be: Spark may get a signal first."""
        return self._stopping.wait(_WATCH_SECONDS)

    @contextmanager
    def _playground(self) -> Iterator[PlaygroundStore | None]:
        """Serve the playground, if there is one."""
        checkpoint = self._settings.checkpoint
        if not (self._module.has_playground or checkpoint.has(FILE)):
            yield None
            return
        planned = self._commit_log.planned()
        offset = None if planned < 0 else feedback_offset(self._commit_log, planned)
        with (
            closing(PlaygroundStore(checkpoint, accepted(offset))) as store,
            Playground(self._module, self._functions, store),
        ):
            yield store

    def _lane_factories(self, run: str) -> list[LaneFactory]:
        """Return the factories of all egresses' lanes, for a run."""
        module, checkpoint, timeout = (
            self._module,
            self._settings.checkpoint,
            self._settings.kafka_timeout,
        )
        return [
            *KafkaLaneFactory.all_of(module.egresses, checkpoint, timeout, run),
            *(
                ConnectorLaneFactory(egress, checkpoint, run)
                for egress in module.connector_egresses
            ),
        ]

    def _publish_leftovers(self, publisher: Publisher, prepared: Prepared) -> None:
        """Publish what an earlier run has committed, before this one sends anything."""
        leftovers = prepared.leftovers
        if leftovers.unpublished:
            logger.info(
                "publishing %d batches that an earlier run had committed",
                len(leftovers.unpublished),
            )
        publisher.start(leftovers)
        publisher.drain(prepared.newest, self._stopping)

    def _run_query(
        self, publisher: Publisher, group_offsets: GroupOffsets, prepared: Prepared
    ) -> None:
        settings = self._settings
        session = open_session(
            debug=settings.debug,
            state_partitions=settings.state_partitions,
            kafka=bool(prepared.ingresses),
        )
        check_retained(session.conf)
        if settings.checkpoint.is_local:
            keep_checkpoint_locally(session)
        if settings.egress_lanes > 1:
            publisher.run_as_tasks(session.sparkContext)
        with jvm_lock(jvm(), settings.checkpoint) if settings.has_lock else nullcontext():
            prepared.succession.check_start(self._commit_log.newest())
            known = check_functions(
                session, settings.checkpoint, self._functions, settings.on_unregistered
            )
            write_functions(settings.checkpoint, known)
            ui = session.sparkContext.uiWebUrl
            reports = Reports(
                self._summary,
                settings,
                prepared,
                publisher,
                group_offsets,
                self._clock,
                self._line,
                ui,
            )
            staging = Staging(
                uuid.uuid4().hex, settings, prepared, publisher, self._clock, reports.staged
            )
            self._follow_query(session, prepared, staging, publisher, reports)

    def _follow_query(
        self,
        session: SparkSession,
        prepared: Prepared,
        staging: Staging,
        publisher: Publisher,
        reports: Reports,
    ) -> None:
        """Start the query, and tell how it is going until it ends."""
        try:
            query = self._start_query(session, prepared, staging)
            reports.open()
            while not query.awaitTermination(timeout=_WATCH_SECONDS):
                if publisher.error is not None:
                    raise publisher.error
                if self._stopping.is_set():
                    raise KeyboardInterrupt
                if prepared.bounds.are_reached():
                    self._stop_sources()
                    _stop(query)
                    return
                reports.tell(query)
        except StreamingQueryException as error:
            if self.is_stopping():
                raise KeyboardInterrupt from None
            cause = staging.error or publisher.error or error
            reason = explained(cause, prepared.ingresses, self._settings)
            raise reason from reason.__cause__ or (error if reason is cause else cause)
        except BaseException:
            publisher.stop()  # or the stage that waits for it would never return
            self._stop_sources()
            _stop_all(session)
            raise
        finally:
            reports.close()

    def _stop_sources(self) -> None:
        """Let no source wait any longer: Spark waits for it when it stops the query."""
        for source in self._sources:
            source.stop()

    def _start_query(
        self, session: SparkSession, prepared: Prepared, staging: Staging
    ) -> StreamingQuery:
        settings, clock, count = self._settings, self._clock, len(self._functions)
        rows = joined_rows(session, prepared, settings, clock, staging.fail, self._sources.append)
        operator = operator_of(session, self._module, self._functions, settings, clock)
        query = start_query(rows, operator, staging.try_to_stage, settings)
        ui = session.sparkContext.uiWebUrl
        logger.info(
            "running %d function%s; checkpoint %s%s",
            count,
            "" if count == 1 else "s",
            settings.checkpoint.shown,
            f"; Spark's UI {ui}" if ui else "",
        )
        return query


def _stop_all(session: SparkSession) -> None:
    """Stop the queries of a session, also a query that was interrupted during its start."""
    try:
        for query in session.streams.active:
            query.stop()
    except (JvmError, OSError):
        logger.debug("Spark has stopped already", exc_info=True)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (JvmError, OSError):
        logger.debug("Spark has stopped already", exc_info=True)
