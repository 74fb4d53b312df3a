# SPDX-License-Identifier: Apache-2.0
"""What is told while a query runs: how it is going, what fails, and who is waited for."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

from statefun.engine.clock import Clock, JumpLog
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.ingress.identities import NewTopics
from statefun.runtime.ingress.watch import IngressWatch
from statefun.runtime.preflight.preparation import Prepared
from statefun.runtime.release.backlog import Backlog
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.metrics import Metrics
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.settings import Settings
from statefun.runtime.status import Status
from statefun.runtime.summary import EndpointLog, FailureLog, Summary
from statefun.runtime.terminal import StatusLine


class Reports:
    """Tells whoever watches of one query.

    Args:
        summary: takes what the run has done.
        settings: of the application.
        prepared: what the run has begun with.
        publisher: publishes what the query sends.
        group_offsets: what was committed for the ingresses.
        clock: whose jumps are told.
        line: where the status is shown; the log if there is none.
        ui: the address of Spark's own page about the query.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - whatever is told of comes together here
        self,
        summary: Summary,
        settings: Settings,
        prepared: Prepared,
        publisher: Publisher,
        group_offsets: GroupOffsets,
        clock: Clock,
        line: StatusLine | None,
        ui: str | None,
    ) -> None:
        ingresses, stops = prepared.ingresses, prepared.bounds.stops
        self._summary = summary
        self._publisher = publisher
        self._failure_log = FailureLog(summary)
        self._endpoint_log = EndpointLog(summary)
        self._status = Status(summary, ingresses, stops, len(prepared.connectors), line, ui)
        self._has_begun = False
        self._metrics = Metrics(ingresses, prepared.connectors, stops, group_offsets, summary)
        self._backlog = Backlog(settings.checkpoint)
        self._watch = IngressWatch(ingresses)
        self._jumps = JumpLog(clock)
        self._new_topics = NewTopics(settings.checkpoint, ingresses)

    def open(self) -> None:
        """Show the numbers of the query to Spark's metrics system, when it has started."""
        self._metrics.open()

    def staged(self, batch: int, outcomes: Sequence[Outcome]) -> None:
        """Take note of a micro-batch, and of what its tasks have done; by the query's thread."""
        self._status.staged(batch)
        self._summary.batches += 1
        self._backlog.staged(batch, outcomes)
        for outcome in outcomes:
            self._summary.invocations += outcome.invocations
            self._failure_log.add(outcome)
            self._endpoint_log.add(outcome)

    def tell(self, query: StreamingQuery) -> None:
        """Tell what there is to tell, now and then."""
        self._failure_log.tell()
        self._endpoint_log.look()
        self._publisher.tally(self._summary)
        self._summary.backlog = self._backlog.count()
        progress = query.lastProgress
        self._metrics.update(progress)
        if progress is not None and not self._has_begun:
            # The newest one may be of an idle moment already.
            self._has_begun = self._status.begin(query.recentProgress)
        self._status.tell(progress)
        self._watch.look()
        self._jumps.look()
        self._new_topics.look()

    def close(self) -> None:
        """Tell the rest, when the query has ended."""
        self._failure_log.tell(at_once=True)
        self._summary.backlog = self._backlog.count()
        self._status.close()
        self._metrics.close()
        self._new_topics.look(at_once=True)
