# SPDX-License-Identifier: Apache-2.0
"""Reports of a running query: its progress, its failures, and endpoints and clusters that do not answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from pyspark.sql.streaming.query import StreamingQuery

from statefun.engine.clock import JumpLog
from statefun.engine.watermark import EventProgress
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.definition import Definition
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.ingress.later_ends import LaterEnds
from statefun.runtime.ingress.watch import IngressWatch
from statefun.runtime.preflight.preparation import Prepared
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.reporting.backlog import Backlog
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.reporting.metrics import Metrics
from statefun.runtime.reporting.observation import Observation
from statefun.runtime.reporting.problem_logs import EndpointLog, FailureLog
from statefun.runtime.reporting.status import Status
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.spark_internals.query_progress import newest_progress, recent_progress
from statefun.sdk.times import from_epoch_millis

logger = logging.getLogger("statefun")


class Reports:
    """Reports about one query: in the log, on the terminal, and as Spark's metrics.

    Args:
        definition: the application.
        prepared: the result of the run's preparation, such as where the ingresses start.
        publisher: publishes the records of the query.
        summary: gets the counts of the run.
        figures: gets the figures of the application, across its runs.
        ui: the address of Spark's own page about the query.
        waiting_gauge: counts the messages that wait in the states of their addresses.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a run
        self,
        definition: Definition,
        prepared: Prepared,
        publisher: Publisher,
        summary: Summary,
        figures: Figures,
        ui: str | None,
        waiting_gauge: WaitingGauge,
    ) -> None:
        checkpoint, line = definition.settings.checkpoint, definition.line
        ingresses, stops = prepared.ingresses, prepared.bounds.stops
        self._summary = summary
        self._publisher = publisher
        self._failure_log = FailureLog(summary)
        self._endpoint_log = EndpointLog(summary)
        self._status = Status(summary, ingresses, stops, len(prepared.connectors), line, ui)
        self._has_begun = False
        self._metrics = Metrics(
            ingresses, prepared.connectors, stops, publisher.group_offsets, summary
        )
        self._backlog = Backlog(checkpoint, waiting_gauge)
        self._commit_log = CommitLog(checkpoint)
        self._figures = figures
        self._observation = Observation(figures, prepared, publisher, self._commit_log, summary)
        self._has_event_times = bool(definition.module.event_times)
        newest = feedback_offset(self._commit_log, self._commit_log.newest())
        self._before = newest.event or EventProgress()
        """The progress of event time in earlier runs."""
        self._watch = IngressWatch(ingresses)
        self._ends = LaterEnds(ingresses, definition.clock)
        self._jumps = JumpLog(definition.clock)
        self._topics = prepared.topics

    def open(self) -> None:
        """Register the run's metrics in Spark's metrics system, once the query has started."""
        self._metrics.open()

    def staged(self, batch: int, outcomes: Sequence[Outcome]) -> None:
        """Count a staged micro-batch and the outcomes of its tasks; the query's thread calls this."""
        self._status.staged(batch)
        self._summary.batches += 1
        self._backlog.staged(batch, outcomes)
        self._figures.staged(outcomes)
        for outcome in outcomes:
            self._summary.invocations += outcome.invocations
            self._failure_log.add(outcome)
            self._endpoint_log.add(outcome)

    def report(self, query: StreamingQuery) -> None:
        """Log new problems, show the progress, and set the metrics; must be called about once a second.

        Raises:
            CheckpointError: if a topic that the run reads was deleted and created anew.
        """
        self._failure_log.log()
        self._endpoint_log.look()
        count_records(self._publisher, self._summary)
        self._summary.backlog = self._backlog.count()
        if self._has_event_times:
            self._report_event_time()
        progress = newest_progress(query)
        if progress is not None:
            self._ends.add_to(progress)
        self._metrics.update(progress)
        if progress is not None and not self._has_begun:
            # The newest progress may already be that of an idle moment.
            history = recent_progress(query)
            self._has_begun = self._status.begin(history)
            self._observation.begin(history)
        self._status.show(progress)
        self._observation.look(progress, lambda: recent_progress(query))
        self._watch.look()
        self._jumps.look()
        self._topics.watch()

    def _report_event_time(self) -> None:
        event = feedback_offset(self._commit_log, self._commit_log.newest()).event
        if event is None:
            return
        summary = self._summary
        passed_by = event.released - self._before.released
        future = event.future - self._before.future
        if passed_by > summary.passed_by:
            logger.warning(
                "the watermark has passed a message that was under way for longer than maxHold; it may be late"
                " (so far: %d)",
                passed_by,
            )
        if future > summary.future_records:
            logger.warning(
                "records are further in the future than maxFuture, and do not move the watermark (so far: %d)",
                future,
            )
        summary.passed_by, summary.future_records = passed_by, future
        if event.watermark is not None:
            summary.watermark = from_epoch_millis(event.watermark)
        self._metrics.event_times = event.newest

    def observe(self, query: StreamingQuery) -> None:
        """Update the figures of the application once more, when the query has ended in order."""
        if not self._has_begun:  # the run was too short for a report
            self._observation.begin(recent_progress(query))
        self._observation.look(newest_progress(query), lambda: recent_progress(query))

    def close(self) -> None:
        """When the query has ended, log the remaining failures; remove the status line and the metrics, and stop watching topics.

        Raises:
            StatefunError: if the checkpoint cannot be read; the rest is done all the same.
        """
        with ExitStack() as parts:
            for part in (
                self._metrics,
                self._observation,
                self._status,
                self._topics,
                self._ends,
            ):
                parts.callback(part.close)
            self._failure_log.log(at_once=True)
            self._endpoint_log.look(at_once=True)
            self._summary.backlog = self._backlog.count()
            if self._has_event_times:
                self._report_event_time()


def count_records(publisher: Publisher, summary: Summary) -> None:
    """Set the numbers of published and refused records in a summary."""
    summary.egress_records, summary.refused = publisher.records, publisher.refused
