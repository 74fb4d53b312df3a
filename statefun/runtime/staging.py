# SPDX-License-Identifier: Apache-2.0
"""Staging: the step of a micro-batch between its computation and its commit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from statefun.engine.clock import Clock
from statefun.engine.event_times import merged
from statefun.protocol.runtime_pb2 import Manifest, Outcome
from statefun.runtime.calls.turns import Turns
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.dispatch.announcement import Announcement, announce
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.flood import FloodGauge
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.preflight.preparation import Prepared
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.settings import Settings
from statefun.runtime.spark_internals.collecting import collected
from statefun.sdk.errors import restored
from statefun.sdk.functions import StatefulFunctions


class Staging:
    """Runs micro-batches, and writes their effects to the outbox before Spark commits the batch.

    Args:
        settings: the application's settings.
        prepared: the result of the run's preparation, such as where the ingresses start.
        publisher: publishes staged batches once they are committed.
        clock: gives the time of a micro-batch.
        on_staged: called with the number of each staged batch, and with the outcomes of its tasks.
        turns: chooses the suspects that are called alone.
        functions: the functions of the application.
        waiting_gauge: counts the messages that wait in the states of their addresses.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of staging
        self,
        settings: Settings,
        prepared: Prepared,
        publisher: Publisher,
        clock: Clock,
        on_staged: Callable[[int, Sequence[Outcome]], None],
        turns: Turns,
        functions: StatefulFunctions,
        waiting_gauge: WaitingGauge,
    ) -> None:
        self._settings = settings
        self._has_event_times = any(each.event_time for each in prepared.ingresses)
        self._succession = prepared.succession
        self._delivery = prepared.delivery
        self._bootstrap = prepared.bootstrap
        self._topics = prepared.topics
        self._publisher = publisher
        self._clock = clock
        self._on_staged = on_staged
        self._outbox = Outbox(settings.checkpoint)
        self._commit_log = CommitLog(settings.checkpoint)
        self._flood_gauge = FloodGauge(self._outbox)
        self.waiting_gauge = waiting_gauge
        self._turns = turns
        self._functions = functions
        self.error: Exception | None = None
        """The exception because of which a batch was not planned or staged; None if there is none."""

    @property
    def holds_reading(self) -> bool:
        """Whether the next micro-batch may read no records, because too many messages wait."""
        return self.waiting_gauge.is_holding

    def try_to_stage(self, frame: DataFrame, batch: int) -> None:
        """Stage a batch when Spark's ``foreachBatch`` asks for it.

        Raises:
            RuntimeError: if staging fails; the exception that says why is in :attr:`error`.
        """
        try:
            self.stage(frame, batch)
        except Exception as error:  # noqa: BLE001 - every error is reported as the end of the query
            self.fail(error)
            # Spark matches the text of this exception against a regular expression that
            # overflows the JVM's stack on long ones, such as tracebacks.
            raise RuntimeError(
                "the micro-batch was not staged; statefun's error says why"
            ) from None

    def fail(self, error: Exception) -> None:
        """Keep the exception because of which a batch was not planned or staged."""
        self.error = error

    def stage(self, frame: DataFrame, batch: int) -> None:
        """Compute a batch in a single Spark action, as Spark requires, and write its effects to the outbox.

        Raises:
            StatefunError: if a function has failed and its failure policy ends the run, or another
                driver has committed batches meanwhile, or a topic was created anew, or publishing has failed.
        """
        is_first = self._succession.check(batch)
        if is_first and self._settings.has_lock:  # no other driver can commit it any more
            self._outbox.forget_others(batch)
        delivered = self._delivery.delivered_before(batch)
        if self.waiting_gauge.may_be_overtaken(self._functions, batch):
            delivered = None
        turn, watermark = self._turns.next(), self._watermark(batch)
        announcement = Announcement(self._clock.now(), delivered, turn, watermark)
        announce(frame.sparkSession.sparkContext, announcement)
        outcomes = [Outcome.FromString(bytes(row.outcome)) for row in collected(frame)]
        for outcome in outcomes:
            for line in outcome.log_lines:
                sys.stderr.write(f"{line}\n")
            if outcome.HasField("failure"):
                reason = restored(outcome.failure.code, outcome.failure.message)
                reason.details = outcome.failure.traceback
                raise reason  # it ends the query before the batch is committed
        self._topics.check(batch)  # after all records are read
        self._turns.choose(outcomes)
        segments = [outcome.segment for outcome in outcomes if outcome.HasField("segment")]
        event_times = merged(
            [each.event_times for each in outcomes if each.HasField("event_times")]
        )
        has_effects = bool(segments or event_times.ByteSize())
        if has_effects:
            manifest = Manifest(
                batch=batch,
                query_id=self._commit_log.query_id(),
                run_id=self._publisher.run_id,
                segments=segments,
                lanes=self._settings.egress_lanes,
            )
            if event_times.ByteSize():
                manifest.event_times.CopyFrom(event_times)
            self._flood_gauge.look(manifest)
            self._outbox.stage(manifest)
        elif is_first:
            self._outbox.forget_others(
                batch
            )  # effects that another driver has staged and not committed
        self._publisher.add(batch, has_effects=has_effects)
        self._on_staged(batch, outcomes)
        self.waiting_gauge.add(batch, outcomes)
        if not self._bootstrap.is_complete:
            self._bootstrap.look(self._commit_log.end_offsets(batch))

    def _watermark(self, batch: int) -> int | None:
        """Return the watermark of a micro-batch, which its plan has fixed; None if there is none."""
        if not self._has_event_times:
            return None
        event = feedback_offset(self._commit_log, batch).event
        return None if event is None else event.watermark
