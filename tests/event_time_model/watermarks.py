# SPDX-License-Identifier: Apache-2.0
"""The watermark by definition: the slowest partition that is not idle, unless something undelivered is older."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from event_time_model.observing import Committed, Planned, Trace, Written, ingress_of
from event_time_model.programs import EventSettings, Program
from statefun.engine.address_keys import address_of
from statefun.engine.buckets import DELAYED, TICK
from statefun.engine.delays import delayed_messages
from statefun.engine.wheel import bucket_of_id, due_tick, is_of_event_time
from statefun.sdk.times import to_epoch_millis
from statefun.testing.message_rows import MessageRow

_Partition = tuple[str, int]


class _Definition:
    """All facts that decide about the watermark."""

    def __init__(self, settings: Mapping[str, EventSettings]) -> None:
        self._settings = settings
        self._written: dict[_Partition, int] = {}
        """When the last record of each partition was written."""
        self._unread = Counter[_Partition]()
        self._newest: dict[_Partition, int] = {}
        """The newest event time of each partition of which a record was handled."""
        self._undelivered: dict[int, int | None] = {}
        """The event times of undelivered messages and records, by the identity of their rows."""
        self._timers: dict[bytes, list[int]] = {}
        """The due times in event time of the messages in each bucket."""

    def written(self, event: Written) -> None:
        """Add a record."""
        partition = _partition(event.row)
        self._written[partition] = event.now
        self._unread[partition] += 1
        self._undelivered[id(event.row)] = event.row.cell("event_time")

    def committed(self, event: Committed) -> None:
        """Take away what was delivered, and add what was sent."""
        for key, rows in event.groups:
            for row in rows:
                self._undelivered.pop(id(row), None)
                if row.record is not None:
                    self._read(row, event.now)
                if row.typename == TICK:
                    passed = int(row.value or b"0")
                    self._timers[key] = [
                        each for each in self._timers.get(key, ()) if each > passed
                    ]
        for message in (*event.done.messages, *event.done.released):
            self._undelivered[id(message)] = message.event_time
        for bucket, content in event.done.waiting:
            if is_of_event_time(due_tick(bucket_of_id(address_of(bucket).id))):
                dues = [each.due for each in delayed_messages(DELAYED, content)]
                self._timers.setdefault(bucket, []).extend(dues)

    def watermark(self, now: int, before: int | None) -> int | None:
        """Return the watermark that follows another one."""
        slowest = self._of_partitions(now)
        if slowest is None:
            return before
        held = [
            each
            for each in self._undelivered.values()
            if each is not None and (before is None or each >= before)
        ]
        held += [due for dues in self._timers.values() for due in dues]
        found = min(slowest, *held) if held else slowest
        return found if before is None else max(found, before)

    def _read(self, row: MessageRow, now: int) -> None:
        partition = _partition(row)
        self._unread[partition] -= 1
        time = to_epoch_millis(row.record.timestamp) if row.record is not None else 0
        if time <= now + self._of(partition).max_future:
            self._newest[partition] = max(self._newest.get(partition, time), time)

    def _of(self, partition: _Partition) -> EventSettings:
        return self._settings[ingress_of(partition[0])]

    def _of_partitions(self, now: int) -> int | None:
        values = {each: time - self._of(each).out_of_order for each, time in self._newest.items()}
        active = [
            each
            for each, time in self._written.items()
            if self._unread[each] or now - time < self._of(each).idle
        ]
        if active:
            known = [values.get(each) for each in active]
            return None if None in known else min(each for each in known if each is not None)
        newest = max(values.values(), default=None)
        if newest is None or not all(each.follows for each in self._settings.values()):
            return newest
        return newest + min(now - time for time in self._written.values())


def _partition(row: MessageRow) -> _Partition:
    assert row.record is not None
    return row.record.topic, row.record.partition


def watermark_differences(program: Program, trace: Trace) -> Iterator[str]:
    """Yield the plans whose watermark is not the one of the definition.

    Messages for long calls hold the watermark at whole seconds until the calls have ended; so it may be earlier then.
    """
    definition = _Definition(program.settings)
    has_long_calls = program.has_long_calls
    before: int | None = None
    for event in trace.events:
        match event:
            case Written():
                definition.written(event)
            case Committed():
                if event.watermark != before:
                    yield f"a micro-batch has the watermark {event.watermark}, not the planned {before}"
                definition.committed(event)
            case Planned(now, watermark):
                expected = definition.watermark(now, before)
                is_held = has_long_calls and (watermark or 0) <= (expected or 0)
                if watermark != expected and not is_held:
                    yield f"the watermark {before} became {watermark}, not {expected}, at {now}"
                if before is not None and (watermark is None or watermark < before):
                    yield f"the watermark {before} fell to {watermark}"
                before = watermark
