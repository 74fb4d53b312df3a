# SPDX-License-Identifier: Apache-2.0
"""Timers under clocks that jump: nothing early, nothing lost, nothing twice, nothing for ever."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations, groupby
from operator import itemgetter
from pathlib import Path

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from statefun import Context, IntType, Message, StatefulFunctions, ValueSpec, message_builder
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.clock import BatchClock, JumpLog
from statefun.runtime.dispatch import buckets
from statefun.runtime.dispatch.dispatcher import Dispatcher
from statefun.runtime.dispatch.groups import AddressValues, Columns, Group
from statefun.runtime.dispatch.payload import Program
from statefun.runtime.effects import Effects
from statefun.runtime.feedback import FeedbackReader
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import Outbox, effect_stream
from statefun.runtime.retention import Retention
from statefun.runtime.timers import bucket_for, due_tick, time_of

SECOND, DAY = 1000, 86_400_000
START = 100 * DAY
KEY = b"Ada\0t/f"
LIFETIME = timedelta(seconds=2)


@attrs.define
class SetClock:
    """A clock that tests set."""

    time: int = START
    stopwatch: int = 0

    def now(self) -> int:
        """Return what was set."""
        return self.time

    def monotonic(self) -> int:
        """Return what was set."""
        return self.stopwatch


class Engine:
    """Micro-batches in plain Python: the real source, dispatcher, outbox and retention.

    A function sends delayed messages, each with its number, and keeps a value that expires.
    """

    def __init__(self, folder: Path, targets: int = 3) -> None:
        self.targets = targets
        self.folder = Folder.at(folder)
        self.clock = SetClock()
        self.due: dict[int, int] = {}
        """By number: when a message is due, as the driver's time was when it was sent."""
        self.arrived: list[int] = []
        self.largest = 0
        """The bytes of the largest state so far."""
        self.states: dict[bytes, bytes] = {}
        """What is stored, by key."""
        self._start = {"batch": -1, "tick": -1}
        self._batch = -1
        self.functions = StatefulFunctions()
        self.functions.register(
            "t/f", self._call, [ValueSpec("v", IntType, expire_after_write=LIFETIME)]
        )
        self.restart()

    def _call(self, ctx: Context, message: Message) -> None:
        if ctx.caller is not None:
            number = message.as_int()
            assert self.due[number] <= self.clock.now(), "early"
            self.arrived.append(number)
            return
        ctx.storage.v = 1
        number, delay = len(self.due), message.as_int()
        self.due[number] = self.clock.now() + delay
        ctx.send_after(
            timedelta(milliseconds=delay),
            message_builder("t/f", f"{number % self.targets}", int_value=number),
        )

    def restart(self) -> None:
        """Let new processes take over."""
        self._outbox = Outbox(self.folder)
        self._reader = FeedbackReader(self.folder, self.clock)
        self._retention = Retention(self.folder)
        self._retention.start(self._outbox.recover(self._batch))

    def settle(self, delays: list[int], *, crash: bool = False) -> None:
        """Send delayed messages; run micro-batches until there is nothing to do."""
        for _ in range(12):
            end = self._reader.latestOffset(self._start, ReadAllAvailable())
            if end == self._start and not delays:
                return
            if crash:  # Spark has planned the batch, and will run it after the restart
                self.restart()
                crash = False
            self._run(delays, end)
            delays = []
        raise AssertionError("micro-batches without end")

    def _run(self, delays: list[int], end: dict[str, int]) -> None:
        effects, states = Effects(), dict(self.states)
        dispatcher = Dispatcher(
            Program(self.functions, {}),
            BatchClock(self.clock, self.clock.now()),
            batch=self._batch + 1,
            settled=None,
            concurrency=1,
            immediate=0,
        )
        for group in dispatcher.dispatch(self._groups(delays, end), effects):
            stored = group.values.encoded()
            states.pop(group.key, None)
            if stored is not None:
                states[group.key] = stored
                self.largest = max(self.largest, len(stored))
        buckets, count = sorted(effects.buckets), len(effects.messages)
        messages = effect_stream(effects.messages.take(), count) if count else None
        manifest = Manifest(
            batch=self._batch + 1, segments=[Segment(messages=messages, buckets=buckets)]
        )
        self._outbox.stage(manifest)
        self._batch, self._start, self.states = self._batch + 1, end, states
        self.folder.child("offsets").write(
            str(self._batch), f"v1\n{{}}\n{json.dumps(end)}".encode()
        )
        self.folder.child("commits").write(str(self._batch), b"v1\n{}")
        self._retention.published(manifest)
        self._retention.committed(self._batch)

    def _groups(self, delays: list[int], end: dict[str, int]) -> Iterator[Group]:
        encode = IntType.serializer().serialize
        rows = [(KEY, None, IntType.typename, encode(delay)) for delay in delays]
        if end != self._start:
            tasks = self._reader.partitions(self._start, end)
            for batch in (batch for task in tasks for batch in self._reader.read(task)):
                names = ("target", "caller", "typename", "value")
                rows += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        for key, own in groupby(sorted(rows, key=itemgetter(0)), itemgetter(0)):
            _, caller, typename, value = zip(*own, strict=True)
            columns = Columns(caller, typename, value, [None] * len(value), lambda *_: None)
            yield Group(key, columns, 0, len(value), AddressValues(self.states.get(key)))


def same_tick(*due: int) -> bool:
    """Tell whether times share a tick."""
    return len({due_tick(bucket_for(each, b"")) for each in due}) == 1


jumps = st.one_of(st.integers(-3 * SECOND, 3 * SECOND), st.sampled_from([-DAY, DAY, 3600 * SECOND]))
sent = st.lists(
    st.one_of(st.integers(0, 3 * SECOND), st.sampled_from([3600 * SECOND, DAY])), max_size=3
)
steps = st.lists(
    st.tuples(jumps, sent, st.sampled_from(["go on", "restart", "crash"])), min_size=1, max_size=8
)


@given(steps, st.sampled_from([0, 100, 64 * 1024]))
@example([(DAY, [0], "go on"), (-DAY, [3600 * SECOND], "restart"), (SECOND, [SECOND], "go on")], 0)
def test_timers_follow_a_clock_that_jumps(
    steps: list[tuple[int, list[int], str]], full: int
) -> None:
    """Each comes once, when the driver's clock says that it is due, whatever that said before.

    So it is when buckets are split, and those of a bucket come in order.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "_FULL_BYTES", full)
        engine = Engine(Path(folder))
        for jump, delays, event in steps:
            engine.clock.time += jump
            if event == "restart":
                engine.restart()
            engine.settle(delays, crash=event == "crash")
            overdue = engine.clock.now() - time_of(1)
            assert {n for n, due in engine.due.items() if due <= overdue} <= {*engine.arrived}
        engine.clock.time = max([START, *engine.due.values()]) + DAY
        engine.settle([])

        assert sorted(engine.arrived) == list(range(len(engine.due)))
        assert engine.states == {}, "neither buckets nor expired values are left"
        for first, second in combinations(range(len(engine.due)), 2):
            dues = engine.due[first], engine.due[second]
            if (second - first) % 3 == 0 and dues[0] <= dues[1] and same_tick(*dues):
                assert engine.arrived.index(first) < engine.arrived.index(second)


def test_an_hour_is_an_hour_after_a_tick_that_was_a_day_ahead(tmp_path: Path) -> None:
    """The tick is in the past of none that is sent later."""
    engine = Engine(tmp_path)
    engine.clock.time += DAY
    engine.settle([0])
    engine.clock.time -= DAY
    engine.settle([3600 * SECOND])
    early = list(engine.arrived)
    engine.clock.time += 3600 * SECOND
    engine.settle([])

    assert (early, engine.arrived) == ([0], [0, 1])


def test_a_storm_of_timers_rewrites_little(tmp_path: Path) -> None:
    """However many wait for the same tick, adding some is no matter of megabytes."""
    engine = Engine(tmp_path, targets=20_000)
    for _ in range(20):
        engine.settle([3600 * SECOND] * 1_000)

    waiting = sum(map(len, engine.states.values()))
    engine.clock.time += 3600 * SECOND
    engine.settle([])

    assert waiting > 16 * 64 * 1024
    assert engine.largest < 70 * 1024
    assert sorted(engine.arrived) == list(range(20_000))


@given(
    skew=st.integers(-DAY, DAY),
    passed=st.integers(0, DAY),
    jump=st.integers(-DAY, DAY),
)
def test_a_worker_goes_on_where_the_driver_was(skew: int, passed: int, jump: int) -> None:
    """Its own clock counts for a minute at most, and its jumps for nothing."""
    own = SetClock(START + skew)
    clock = BatchClock(own, START)
    at_first = clock.now()
    own.time += passed + jump
    own.stopwatch += passed

    assert at_first == START + min(max(skew, 0), 3600 * SECOND)
    assert clock.now() == at_first + passed


def test_each_jump_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With its direction and size; time that passes is no jump."""
    clock = SetClock()
    log = JumpLog(clock)

    with caplog.at_level(logging.WARNING, "statefun"):
        for jump, passed in ((0, DAY), (DAY, SECOND), (0, SECOND), (-DAY, 0), (0, 0)):
            clock.time += jump + passed
            clock.stopwatch += passed
            log.look()

    assert [message.split(" (")[0] for message in caplog.messages] == [
        "the clock has jumped ahead by 1 day, 0:00:00",
        "the clock has jumped back by 1 day, 0:00:00",
    ]
