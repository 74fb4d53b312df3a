# SPDX-License-Identifier: Apache-2.0
"""The watermark of an application under test in this process, by the same rules as on Spark."""

from __future__ import annotations

from collections.abc import Iterable

from statefun.engine.buckets import TICK
from statefun.engine.effects import NO_TIME
from statefun.engine.event_times import record_time
from statefun.engine.record_routes import RecordRoutes
from statefun.engine.watermark import EventProgress, Partition, Situation, next_progress
from statefun.module.model import Module
from statefun.protocol.runtime_pb2 import EventTimes
from statefun.sdk.address import TypeName
from statefun.sdk.times import to_epoch_millis
from statefun.testing.due_times import DueTimes
from statefun.testing.message_rows import MessageRow


class EventClock:
    """Computes the watermark before each micro-batch.

    Under test, records that are not handled yet hold the watermark as messages do, because a micro-batch may
    take them in any order; on Spark, the records of a partition are read in the order of their offsets.

    Args:
        module: the components of the application.
    """

    def __init__(self, module: Module) -> None:
        self._settings = module.event_times
        self._routes = RecordRoutes.of(module).event_times
        self._facts: list[EventTimes] = []
        self._written: dict[Partition, int] = {}
        """When the last record of each partition was written, in milliseconds since the epoch."""
        self.progress = EventProgress()
        self.timers = DueTimes(in_event_time=True)
        """The event times at which messages of ``send_at`` are due."""

    def wrote(self, ingress: TypeName, topic: str, number: int, now: int) -> None:
        """Record that a record was written to a partition."""
        if str(ingress) in self._settings:
            self._written[Partition(str(ingress), topic, number)] = now

    def committed(self, facts: EventTimes) -> None:
        """Add the facts about event time that a committed micro-batch has reported."""
        facts.ClearField("sent")  # all messages that are not delivered are known anyway
        self._facts.append(facts)

    def advance(self, undelivered: Iterable[MessageRow], now: int) -> int | None:
        """Compute the progress before the next micro-batch; return the watermark, or None if there is none.

        Args:
            undelivered: all records and messages that are not handled yet.
            now: the present time, in milliseconds since the epoch.
        """
        if not self._settings:
            return None
        facts, self._facts = self._facts, []
        waiting = EventTimes()
        unread: set[Partition] = set()
        least = NO_TIME if self.progress.watermark is None else self.progress.watermark
        for row in undelivered:
            time = self._time_of(row, unread)
            if (
                time is not None
                and time >= least
                and not (waiting.HasField("sent") and waiting.sent.time <= time)
            ):
                waiting.sent.time, waiting.sent.target = time, row.target
        caught_up = {
            each: now - written for each, written in self._written.items() if each not in unread
        }
        next_timer = self.timers.first_bucket
        situation = Situation([*self._written], caught_up, now, next_timer=next_timer)
        self.progress = next_progress(self.progress, [*facts, waiting], self._settings, situation)
        return self.progress.watermark

    def ticks(self, watermark: int | None) -> list[MessageRow]:
        """Return the ticks for the buckets whose messages, sent with ``send_at``, are due at a watermark.

        Until a bucket has released its messages, its tick holds the watermark.
        """
        if watermark is None:
            return []
        keys = self.timers.take(watermark)
        return [MessageRow(key, None, TICK, b"%d" % watermark, None, watermark) for key in keys]

    def _time_of(self, row: MessageRow, unread: set[Partition]) -> int | None:
        """Return the event time of a record or message; add the partition of a record to ``unread``."""
        if row.record is None:
            return row.event_time
        route = None if row.route is None else self._routes.get(row.route)
        if route is None:
            return None
        record = row.record
        unread.add(Partition(route.ingress, record.topic, record.partition))
        try:
            return record_time(route, to_epoch_millis(record.timestamp), row.value)
        except Exception:  # noqa: BLE001 - the failure policy decides when the record is handled
            return None
