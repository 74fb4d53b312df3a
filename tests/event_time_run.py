# SPDX-License-Identifier: Apache-2.0
"""An application with timers in event time and windows whose drivers crash, on a real checkpoint without Spark."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs

from statefun import Address, Context, KafkaIngress, StatefulFunctions
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.program import Program
from statefun.engine.watermark import EventProgress, Partition, Situation, next_progress
from statefun.module.model import Module
from statefun.protocol.runtime_pb2 import EventTimes, Manifest, Segment
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_offset import FeedbackOffset
from statefun.runtime.ingress.feedback_tasks import read_feedback_task
from statefun.runtime.release.retention import Retention
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream
from statefun.sdk.record import KafkaRecord
from statefun.testing.message_rows import MessageRow, columns_of, rows_of_record
from statefun.windows import Hopping, Tumbling, Window, WindowContext, windowed

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
_PLACE = Partition("test/in", "in", 0)
_END = 10_000
"""The seconds of the last record, which lets all timers come before it."""
_MOST_BATCHES = 3000
_OF_CLOCK, _WITH_TOKEN = "cd", "tc"
"""The first characters of the names of timers of the clock, and of those that can be cancelled."""


class StoppedError(Exception):
    """The application does not come to an end."""


@attrs.define
class Journal:
    """What functions have done in committed micro-batches; times are in seconds."""

    asked: dict[str, tuple[float, float]] = attrs.field(factory=dict)
    """When each timer is due, and the watermark when it was asked for; for one of the clock, the times."""
    cancelled: dict[str, float] = attrs.field(factory=dict)
    """The watermark, or for a timer of the clock the time, when each timer was cancelled."""
    fired: list[tuple[str, float]] = attrs.field(factory=list)
    """The timers that have come, and the watermark or time then."""
    late: list[float] = attrs.field(factory=list)
    """The start of the window of each late record."""
    closed: list[tuple[float, float, int]] = attrs.field(factory=list)
    """The start, the end and the count of each closed window."""

    def add(self, later: Journal) -> None:
        """Add what was done later."""
        for name in ("asked", "cancelled"):
            getattr(self, name).update(getattr(later, name))
        for name in ("fired", "late", "closed"):
            getattr(self, name).extend(getattr(later, name))


def seconds(time: datetime | None) -> float:
    """Return the seconds since the start; a very small number for None."""
    return -1e9 if time is None else (time - START).total_seconds()


class Sums(Window):
    """The number of a window's records."""

    count: int = 0

    def merge(self, later: Sums) -> None:
        """Add the records of a later pane."""
        self.count += later.count


KINDS: list[Tumbling | Hopping] = [
    Tumbling(5 * SECOND, grace=SECOND),
    Hopping(6 * SECOND, every=4 * SECOND, grace=SECOND),
]
"""The kinds of windows that a run may have: the second one has panes."""


class MovingClock:
    """A clock that moves while no micro-batch runs."""

    def __init__(self) -> None:
        self.time = round(START.timestamp() * 1000)
        """The time that it shows, in milliseconds since the epoch."""

    def now(self) -> int:
        """Return the time."""
        return self.time

    monotonic = now


def program(
    journal: Callable[[], Journal], clock: MovingClock, kind: Tumbling | Hopping
) -> StatefulFunctions:
    """Return functions that write what they do into the journal of the present attempt."""
    functions = StatefulFunctions()

    def present(ctx: Context, name: str) -> float:
        """Return the watermark, or the time for a timer of the clock; in seconds since the start."""
        return (
            clock.time / 1000 - START.timestamp()
            if name[0] in _OF_CLOCK
            else seconds(ctx.watermark)
        )

    @functions.bind("test/ask")
    def ask(ctx: Context, text: str) -> None:
        for name, time in json.loads(text)["timers"]:
            now = present(ctx, name)
            target = Address("test/fire", f"{len(name)} {(time or 0) % 7}")
            token = name if name[0] in _WITH_TOKEN else ""
            if time is None:
                journal().cancelled[name] = now
                ctx.cancel_delayed_message(name)
            elif name[0] in _OF_CLOCK:
                journal().asked[name] = now + time, now
                ctx.send_after(time * SECOND, target, name, token)
            else:
                journal().asked[name] = time, now
                ctx.send_at(START + time * SECOND, target, name, token)

    @functions.bind("test/fire")
    def fire(ctx: Context, name: str) -> None:
        journal().fired.append((name, present(ctx, name)))

    @windowed("test/sums", kind, functions=functions)
    def add(ctx: WindowContext, text: str, sums: Sums) -> None:
        sums.count += 1

    @add.on_close
    def close(ctx: WindowContext, sums: Sums) -> None:
        start, end = map(seconds, ctx.window)
        journal().closed.append((start, end, sums.count))

    @add.on_late
    def late(ctx: WindowContext, text: str) -> None:
        journal().late.append(seconds(ctx.window.start))

    return functions


class Watch:
    """Computes the watermark as :class:`EventWatch` does, of a partition that never is idle, and without a broker."""

    def __init__(self, module: Module) -> None:
        self._settings = module.event_times
        self.ends_soon = False

    def progress(
        self, before: EventProgress, facts: list[EventTimes], _newest: int, next_timer: int | None
    ) -> EventProgress:
        """Return the progress before the next micro-batch."""
        situation = Situation([_PLACE], next_timer=next_timer)
        return next_progress(before, facts, self._settings, situation)


class Run:
    """An application that crashes at random moments.

    Args:
        folder: the folder of the checkpoint.
        chance: decides what happens.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.journal = Journal()
        self.wrong: list[str] = []
        """What was wrong with plans and states."""
        self._chance = chance
        self._attempt = Journal()
        self._checkpoint = Folder.at(folder)
        self._log, self._outbox = CommitLog(self._checkpoint), Outbox(self._checkpoint)
        ingress = (
            KafkaIngress.for_id("test/in")
            .with_kafka_address("kafka:9092")
            .with_consumer_group_id("g")
            .with_topic("in", targets=["test/ask", "test/sums"], valueFormat={"type": "text"})
            .with_event_time(out_of_order=SECOND, max_future=timedelta(days=999))
            .build()
        )
        self._module = Module(ingresses=(ingress,))
        self._route = ingress.topics[0]
        self._clock = MovingClock()
        self._kind = chance.choice(KINDS)
        self._functions = program(lambda: self._attempt, self._clock, self._kind)
        self._program = Program.of(self._functions, self._module)
        self._records = list(self._script())
        self._states: Mapping[bytes, bytes] = {}
        self._plans: dict[int, list[MessageRow]] = {}
        self._newest = -1
        self._begin()

    def _begin(self) -> None:
        """Start a driver."""
        watch: Any = Watch(self._module)
        self._reader = FeedbackReader(self._checkpoint, self._clock, watch=watch)
        leftovers = self._outbox.recover(self._newest)
        self._retention = Retention(self._checkpoint)
        self._retention.start(leftovers)
        self._unpublished = list(leftovers.unpublished)

    def _script(self) -> Iterator[KafkaRecord]:
        chance, names, asked = self._chance, itertools.count(), list[str]()
        common = [chance.randrange(60) + chance.choice([0, 0.25]) for _ in range(2)]
        for number in range(chance.randrange(2, 12)):
            timers: list[tuple[str, float | None]] = []
            for _ in range(chance.choice([0, 1, 3, 30])):
                time = chance.choice([*common, *common, chance.randrange(80), 7200 + number])
                asked.append(f"{chance.choice('ttxxcd')}{next(names)}")
                timers.append((asked[-1], time))
            tokens = [name for name in asked if name[0] in _WITH_TOKEN]
            if tokens and chance.random() < 0.5:
                timers.append((chance.choice(tokens), None))
            yield self._record(number, number * 5 - chance.choice([0, 0, 1, 9]), timers)
        yield self._record(99, _END, [])

    @staticmethod
    def _record(number: int, time: float, timers: list[tuple[str, float | None]]) -> KafkaRecord:
        value = json.dumps({"timers": timers}).encode()
        return KafkaRecord(b"Ada", value, "in", 0, number, START + time * SECOND, ())

    def to_the_end(self) -> None:
        """Run micro-batches, with crashes, until nothing is left to do."""
        was_idle = False
        for _ in range(_MOST_BATCHES):
            self._clock.time += self._chance.choice([0, 100, 3000])
            if self._step():
                was_idle = False
            elif was_idle:
                self._publish(everything=True)
                return
            else:
                self._clock.time += 3 * 3_600_000
                was_idle = True
        raise StoppedError

    def _crashes(self) -> bool:
        if self._chance.random() < 0.1:
            self._begin()
            return True
        return False

    def _step(self) -> bool:
        """Plan, run and commit a micro-batch, unless a crash comes before; return whether there was any."""
        batch = self._newest + 1
        if not self._checkpoint.child("offsets").has(str(batch)) and not self._plan(batch):
            return False
        (read, start), (read_to, end) = self._ends(batch - 1), self._ends(batch)
        rows = list(self._messages(start, end))
        if self._plans.setdefault(batch, [*rows]) != rows:
            self.wrong.append(f"micro-batch {batch} was repeated with other messages")
        if self._crashes():
            return True
        rows[:0] = [
            row
            for record in self._records[read:read_to]
            for row in rows_of_record(
                self._module.ingresses[0].id, record, self._route, self._functions
            )
        ]
        states = self._handle(batch, rows, FeedbackOffset.decode(end))
        if self._crashes():
            return True
        self._checkpoint.child("commits").write(str(batch), b"v1\n{}")
        self._newest, self._states = batch, states
        self.journal.add(self._attempt)
        self._unpublished.append(batch)
        if not self._crashes():
            self._publish(everything=False)
        return True

    def _plan(self, batch: int) -> bool:
        read, start = self._ends(batch - 1)
        to = min(read + self._chance.randrange(3), len(self._records))
        end = self._reader.latest_offset(start)
        if end == start and to == read < len(self._records):
            to += 1
        if end == start and to == read:
            return False
        lines = ["v1", "{}", json.dumps({"in": {"0": to}}), json.dumps(end)]
        self._checkpoint.child("offsets").write(str(batch), "\n".join(lines).encode())
        return True

    def _ends(self, batch: int) -> tuple[int, dict[str, Any]]:
        if batch < 0:
            return 0, self._reader.initial_offset()
        ingress, feedback = self._log.end_offsets(batch)
        return int((ingress or {})["in"]["0"]), feedback or {}

    def _messages(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[MessageRow]:
        """Yield the rows of the feedback source in the order of Spark: delayed messages come last, by due times."""
        found: list[tuple[int, int, MessageRow]] = []
        names = ("target", "caller", "typename", "value", "trace", "event_time")
        for task in self._reader.tasks(start, end):
            for rows in read_feedback_task(self._outbox, task):
                for row in rows.to_pylist():
                    due = -(1 << 62) if row["timestamp"] is None else row["timestamp"]
                    found.append((due, row["offset"], MessageRow(*(row[each] for each in names))))
        yield from (row for *_, row in sorted(found, key=lambda each: each[:2]))

    def _handle(
        self, batch: int, rows: list[MessageRow], offset: FeedbackOffset
    ) -> dict[bytes, bytes]:
        """Call the functions, and stage the effects; return the new states."""
        self._attempt = Journal()
        groups: dict[bytes, list[MessageRow]] = {}
        for row in rows:
            groups.setdefault(row.target, []).append(row)
        effects, states = Effects(), dict(self._states)
        dispatcher = Dispatcher(
            self._program,
            BatchClock(self._clock, self._clock.now()),
            batch=batch,
            delivered_up_to=offset.batch,
            concurrency=1,
            immediate=0,
            watermark=offset.event.watermark if offset.event is not None else None,
        )
        made = [
            Group(key, columns_of(own), 0, len(own), AddressValues(states.get(key)))
            for key, own in groups.items()
        ]
        for group in dispatcher.dispatch(made, effects):
            if group.values.changed:
                states.pop(group.key, None)
                content = group.values.encoded()
                if content is not None:
                    states[group.key] = content
        buckets, count = sorted(effects.buckets), len(effects.messages)
        content = arrow_stream(effects.messages.take(), MESSAGE_SCHEMA)
        messages = effect_stream(content, count) if count else None
        found = dispatcher.summary().event_times
        manifest = Manifest(batch=batch, segments=[Segment(messages=messages, buckets=buckets)])
        if found.ByteSize():
            manifest.event_times.CopyFrom(found)
        self._outbox.stage(manifest)
        return states

    def _publish(self, *, everything: bool) -> None:
        """Let the publisher follow."""
        while self._unpublished and (everything or self._chance.random() < 0.7):
            manifest = self._outbox.manifest(self._unpublished.pop(0))
            assert manifest is not None
            self._retention.published(manifest)
            self._retention.committed(self._newest)

    def differences(self) -> list[str]:
        """Return what is not as it must be."""
        return [*self.wrong, *self._timers(), *self._windows(), *self._left()]

    def _timers(self) -> Iterator[str]:
        journal = self.journal
        fired = [name for name, _ in journal.fired]
        for name, (due, asked_at) in journal.asked.items():
            allowed = {1}
            if name in journal.cancelled:
                is_sure = journal.cancelled[name] < due and asked_at < due
                allowed = {0} if is_sure else {0, 1}
            if fired.count(name) not in allowed:
                yield f"{name} came {fired.count(name)} times, and not {allowed}"
        for name, watermark in journal.fired:
            due, asked_at = journal.asked[name]
            is_late = watermark > due and asked_at < due and name[0] not in _OF_CLOCK
            if watermark < due - 0.001 or is_late:
                yield f"{name} was due at {due}, and came at {watermark}"

    def _windows(self) -> Iterator[str]:
        """Compare the closed windows with all records."""
        journal, times = self.journal, [seconds(record.timestamp) for record in self._records]
        counts = {(start, end): count for start, end, count in journal.closed}
        if len(counts) != len(journal.closed):
            yield f"a window has closed twice: {sorted(journal.closed)}"
        size = self._kind.size.total_seconds()
        windows = self._kind.assigner()
        starts = {
            start / 1000 - START.timestamp()
            for record in self._records
            for start, _ in windows(round(record.timestamp.timestamp() * 1000))
        }
        for start in starts:
            own = sum(start <= time < start + size for time in times)
            expected = 0 if start + size > _END else own - journal.late.count(start)
            if counts.pop((start, start + size), 0) != expected:
                yield f"the window at {start} has not closed with its {expected} records"
        if counts:
            yield f"the windows {counts} have no records"

    def _left(self) -> Iterator[str]:
        """Look at the states and files: only the last window is open, and has a timer."""
        left = {key for key in self._states if not key.startswith(b"Ada\0")}
        if len(left) != 1:
            yield f"the states of {left} are left"
        if self._outbox.batches():
            yield f"the outbox has {self._outbox.batches()}"
        if TimerLog(self._checkpoint).load().next_tick(of_event_time=True) is None:
            yield "nobody will open the bucket of the last window"
