# SPDX-License-Identifier: Apache-2.0
"""One run of an application, from the preparation of its checkpoint until its last record is published."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext

import attrs
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from statefun.compilation import is_compiled
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.calls.call_register import CALLS_INBOX, CallRegister
from statefun.runtime.calls.call_server import CallServer
from statefun.runtime.calls.turns import Turns
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.inbox import Inbox
from statefun.runtime.checkpoint.kept_files import OwnCommits
from statefun.runtime.checkpoint.known_functions import write_functions
from statefun.runtime.checkpoint.lock import jvm_lock
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE, PlaygroundStore
from statefun.runtime.checkpoint.renamed_functions import continued
from statefun.runtime.checkpoint.repair_log import REPAIRS_INBOX, RepairLog
from statefun.runtime.checkpoint.sent_messages import SENT_INBOX, SentMessages
from statefun.runtime.checkpoint.trace_log import TraceLog, trace_entries
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.egress.connector_lanes import ConnectorLaneFactory
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane_set import LaneFactory
from statefun.runtime.garbage import frozen
from statefun.runtime.ingress.declared import all_sources
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.ingress.playground_inbox import PLAYGROUND_INBOX, PlaygroundInbox
from statefun.runtime.playground.server import Playground
from statefun.runtime.preflight.preparation import prepare
from statefun.runtime.preflight.unregistered import check_functions
from statefun.runtime.query import Query
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention, check_retained
from statefun.runtime.reporting.explanation import explained
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.reporting.reports import Reports, count_records
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.spark.session import driver_address, open_session, use_checkpoint
from statefun.runtime.spark_internals.jvm import jvm
from statefun.runtime.spark_internals.store_manager import commits_of
from statefun.runtime.staging import Staging

logger = logging.getLogger("statefun")

WATCH_SECONDS = 1
"""The time, in seconds, between two checks of a run's query."""
_CALLS_SECONDS = 0.1
"""The time, in seconds, between two checks whether a run that ends still has unfinished calls."""


class Run:
    """One run of an application; the process must have locked the checkpoint.

    Args:
        definition: the application.
        control: the orders to the application; its event ``stopping`` ends the run.
        figures: gets the figures of the application, across its runs.
        on_staged: is called with the number of each micro-batch, and the outcomes of its tasks, once it is staged.

    Raises:
        StatefunError: if the run cannot begin.
    """

    def __init__(
        self,
        definition: Definition,
        control: Control,
        figures: Figures,
        on_staged: Callable[[int, Sequence[Outcome]], None],
    ) -> None:
        settings, module = definition.settings, definition.module
        checkpoint, run = settings.checkpoint, uuid.uuid4().hex
        if checkpoint.kept is not None:
            checkpoint.kept.own_commits = None  # of an earlier run
        self._settings = settings
        self._control = control
        self._figures = figures
        self._on_staged = on_staged
        self._stopping = control.stopping
        self.summary = Summary(restarts=control.restarts)
        """The counts of the run until now."""
        self._has_logged_waiting = False
        """Whether the log says that a run which drains waits for messages in the states of their addresses."""
        self._commit_log = CommitLog(checkpoint)
        self._prepared = prepare(module, settings)
        functions = continued(definition.functions, checkpoint)
        self._definition = attrs.evolve(definition, functions=functions)
        self._planned = feedback_offset(self._commit_log, self._commit_log.planned())
        last = self._planned.last_of(CALLS_INBOX)
        self._register = CallRegister(CallLog(checkpoint), last)
        self._waiting_gauge = WaitingGauge(checkpoint)
        self._retention = Retention(checkpoint)
        self._group_offsets = GroupOffsets(
            self._prepared.ingresses, self._prepared.bounds.stops, self._commit_log
        )
        factories: list[LaneFactory] = [
            *KafkaLaneFactory.all_of(module.egresses, checkpoint, settings.kafka_timeout, run),
            *(
                ConnectorLaneFactory(egress, checkpoint, run)
                for egress in module.connector_egresses
            ),
        ]
        self._publisher = Publisher(
            run,
            factories,
            settings,
            self._group_offsets,
            self._retention,
            control.pauses,
            figures.published,
        )

    def complete(self) -> Summary:
        """Publish the batches of earlier runs, run the query to its end, and publish its batches.

        Raises:
            StatefunError: if the run fails; the checkpoint's state stays that of the last committed batch.
            KeyboardInterrupt: if ``stopping`` is set before the query has ended.
        """
        with closing(self._group_offsets), frozen(), self._inboxes() as inboxes:
            try:
                self._publish_leftovers()
                self._run_query(inboxes)
                self._publisher.drain(self._commit_log.newest(), self._stopping)
            finally:
                self._publisher.stop()
                # It has gone on until now, whatever has ended the run.
                count_records(self._publisher, self.summary)
                self._figures.count_published(self._publisher.waiting())
        self.summary.next_timer = self._retention.next_timer()
        return self.summary

    @contextmanager
    def _inboxes(self) -> Iterator[Mapping[str, Inbox]]:
        """Open the inboxes and the playground, if there is one; yield the inboxes by their names.

        The offset of the feedback source uses the same names: it holds, for each name, the number of the
        inbox's last delivered message.
        """
        checkpoint, module = self._settings.checkpoint, self._definition.module
        inboxes: dict[str, Inbox] = {
            CALLS_INBOX: self._register,
            REPAIRS_INBOX: RepairLog(checkpoint),
            SENT_INBOX: SentMessages(checkpoint, self._planned.last_of(SENT_INBOX)),
        }
        if not (module.has_playground or checkpoint.has(PLAYGROUND_FILE)):
            yield inboxes
            return
        with (
            closing(PlaygroundStore(checkpoint, self._planned.last_of(PLAYGROUND_INBOX))) as store,
            Playground(module, self._definition.functions, store),
        ):
            inbox = PlaygroundInbox(store, self._waiting_gauge, self._definition.clock)
            yield inboxes | {PLAYGROUND_INBOX: inbox}

    def _publish_leftovers(self) -> None:
        """Publish the committed batches that earlier runs have left, before this run publishes any record."""
        leftovers = self._prepared.leftovers
        if leftovers.unpublished:
            logger.info(
                "publishing %d batches that earlier runs have committed and not published",
                len(leftovers.unpublished),
            )
        self._publisher.start(leftovers)
        self._publisher.drain(self._prepared.newest, self._stopping)

    def _run_query(self, inboxes: Mapping[str, Inbox]) -> None:
        """Run the query until it ends, or until ``stopping`` is set."""
        settings, publisher, prepared = self._settings, self._publisher, self._prepared
        session = open_session(
            debug=settings.debug,
            state_partitions=settings.state_partitions,
            kafka=bool(prepared.ingresses),
        )
        check_retained(session.conf)
        use_checkpoint(session, settings.checkpoint, publisher.run_id)
        if settings.egress_lanes > 1:
            publisher.run_as_tasks(session.sparkContext)
        with jvm_lock(jvm(), settings.checkpoint) if settings.has_lock else nullcontext():
            prepared.succession.check_start(self._commit_log.newest())
            if settings.checkpoint.kept is not None:
                settings.checkpoint.kept.own_commits = OwnCommits(
                    publisher.run_id, prepared.newest, commits_of(publisher.run_id)
                )
            functions = check_functions(
                session, settings.checkpoint, self._definition.functions, settings.on_unregistered
            )
            write_functions(settings.checkpoint, functions)
            self._control.pauses.declare(
                [str(each.id) for each in all_sources(self._definition.module)],
                list(self._publisher.egresses),
            )
            ui = session.sparkContext.uiWebUrl
            register = self._register
            traces = TraceLog(settings.checkpoint, settings.trace_journal or 0)

            def staged(batch: int, outcomes: Sequence[Outcome]) -> None:
                register.staged(batch, outcomes)
                traces.add(batch, trace_entries(outcomes, self._definition.clock.now()))
                reports.staged(batch, outcomes)
                self._on_staged(batch, outcomes)

            clock = self._definition.clock
            staging = Staging(
                settings,
                prepared,
                publisher,
                clock,
                staged,
                Turns(register.servers, clock),
                self._definition.functions,
                self._waiting_gauge,
            )
            reports = Reports(
                self._definition,
                prepared,
                publisher,
                self.summary,
                self._figures,
                ui,
                self._waiting_gauge,
            )
            with closing(reports):
                grace, has_failed = settings.shutdown_grace, False
                server = CallServer(register, *driver_address(session), grace, settings.call_port)
                query: Query | None = None
                try:
                    query = Query(
                        session,
                        self._definition,
                        prepared,
                        inboxes,
                        staging,
                        server.address,
                        self._control,
                    )
                    self._follow(query, reports, ui)
                except StreamingQueryException as error:
                    if self._stopping.wait(WATCH_SECONDS):  # Spark may get a signal first
                        if failure := staging.error or publisher.error:
                            logger.warning("the run has failed while it was ended: %s", failure)
                        raise KeyboardInterrupt from None
                    has_failed = True
                    cause = staging.error or publisher.error or error
                    reason = explained(cause, prepared.ingresses, settings)
                    raise reason from reason.__cause__ or (error if reason is cause else cause)
                except BaseException:
                    publisher.stop()  # else a micro-batch that waits for it would never end
                    if query is not None:
                        query.stop()
                    raise
                finally:
                    server.close(has_failed=has_failed)

    def _follow(self, query: Query, reports: Reports, ui: str | None) -> None:
        """Start the query, and report its progress until it ends."""
        stream = query.start()
        self._log_start(ui)
        self._log_pauses()
        reports.open()
        self._control.pauses.listen(query.look)
        self._control.is_watched = True
        try:
            self._watch(query, stream, reports)
            reports.observe(stream)
        finally:
            self._control.is_watched = False
            self._control.pauses.forget(query.look)
        if self._stopping.is_set():  # since the last look at it
            raise KeyboardInterrupt

    def _watch(self, query: Query, stream: StreamingQuery, reports: Reports) -> None:
        while not stream.awaitTermination(timeout=WATCH_SECONDS):
            if self._publisher.error is not None:
                raise self._publisher.error
            if self._stopping.is_set():
                self._wait_for_calls(stream)
                raise KeyboardInterrupt
            if self._is_complete() or (query.look() and self._is_drained(query)):
                query.stop()
                return
            self._figures.waits = self._prepared.bootstrap.waits()
            self.summary.calls_under_way = self._register.count
            self.summary.oldest_call = self._register.oldest
            reports.report(stream)

    def _is_complete(self) -> bool:
        """Return whether a bounded run has read all its records, and handled all messages caused by them."""
        if self._register.is_pending() or not self._prepared.bounds.are_reached():
            return False
        if self._commit_log.planned() > self._commit_log.newest():
            return False  # a micro-batch is under way, in which calls of earlier runs may be made again
        return not self._register.is_pending()  # a call may have left meanwhile

    def _is_drained(self, query: Query) -> bool:
        """Return whether the run was ordered to drain, and has handled all records and messages that it has read."""
        if not self._control.may_end_draining():
            return False
        log = self._commit_log
        # This comes first: a micro-batch that handles them keeps the query busy for two more looks.
        waiting = query.waiting_messages
        is_idle = (
            query.is_idle() and log.planned() == log.newest() and not self._register.is_pending()
        )
        if is_idle and waiting > 0 and not self._has_logged_waiting:
            self._has_logged_waiting = True
            logger.warning(
                "the application is drained, except for %d messages that wait for endpoints; it ends when these are handled. "
                "`statefun stop` ends it before that, and leaves them to the next start",
                waiting,
            )
        return is_idle and waiting <= 0

    def _wait_for_calls(self, stream: StreamingQuery) -> None:
        """Wait, for a limited time, for the results of the calls that have left their micro-batches."""
        names, grace = self._register.names(), self._settings.shutdown_grace
        end = time.monotonic() + grace.total_seconds()
        if names:
            logger.info(
                "%d calls are not finished; the run waits up to %s for their results",
                len(names),
                grace,
            )
        while names & self._register.names() and time.monotonic() < end:
            if not stream.isActive:
                return
            time.sleep(_CALLS_SECONDS)

    def _log_pauses(self) -> None:
        """Log the paused parts of the application, as they neither read nor publish."""
        parts = self._control.pauses.paused.parts()
        if parts:
            logger.warning("paused until `statefun resume`: %s", ", ".join(parts))

    def _log_start(self, ui: str | None) -> None:
        count = len(self._definition.functions)
        logger.info(
            "running %d function%s, %s; checkpoint %s%s",
            count,
            "" if count == 1 else "s",
            "with the compiled engine" if is_compiled() else "with the engine in Python",
            self._settings.checkpoint.shown,
            f"; Spark's UI {ui}" if ui else "",
        )
