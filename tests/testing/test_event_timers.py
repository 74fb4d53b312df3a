# SPDX-License-Identifier: Apache-2.0
"""Timers in event time, in the test kit, which runs the same engine as Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import (
    Address,
    Context,
    DefinitionError,
    FunctionError,
    KafkaIngress,
    Message,
    StatefulFunctions,
)
from statefun.testing import DelayedMessage, InProcessApplication, TestContext
from statefun.testing.tested import loaded

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
FIRE = "com.example/fire"


def at(seconds: float) -> datetime:
    """Return a time after the start of the test's clock."""
    return START + timedelta(seconds=seconds)


class Timers:
    """An application whose records ask for messages at event times, and that notes each delivered message."""

    def __init__(self, seed: int = 0, *, follow: bool = False, event_time: bool = True) -> None:
        self.fired: list[tuple[str, float]] = []
        """The messages, each with the seconds at which it was due."""
        self.seen: list[tuple[float, float]] = []
        """For each invocation, the seconds of its event time and of the watermark."""
        self.sent_early: dict[str, bool] = {}
        """Whether a message was sent before the watermark has come to its time."""
        self.late: list[str] = []
        """The messages that were sent early and have come late, by their event times."""
        functions = StatefulFunctions()

        @functions.bind("com.example/ask")
        def ask(ctx: Context, message: Message) -> None:
            self.see(ctx)
            for command in filter(None, message.as_string().split(" ")):
                name, _, seconds = command.partition("=")
                if seconds:
                    due = at(float(seconds))
                    self.sent_early[name] = ctx.watermark is None or ctx.watermark < due
                    ctx.send_at(due, Address(FIRE, "Ada"), name, name)
                else:
                    ctx.cancel_delayed_message(name)

        @functions.bind(FIRE)
        def fire(ctx: Context, message: Message) -> None:
            self.see(ctx)
            assert ctx.event_time is not None
            assert ctx.watermark is not None
            name, due = message.as_string(), (ctx.event_time - START).total_seconds()
            if self.sent_early[name] and ctx.watermark > ctx.event_time:
                self.late.append(name)
            self.fired.append((name, due))

        ingress = (
            KafkaIngress.for_id("com.example/in")
            .with_kafka_address("kafka:9092")
            .with_consumer_group_id("g")
            .with_topic("in", targets=["com.example/ask"], valueFormat={"type": "text"})
        )
        if event_time:
            ingress.with_event_time(
                out_of_order=timedelta(0),
                max_future=timedelta(days=1),
                when_all_idle="follow" if follow else "hold",
            )
        program = loaded(None, None, functions, [ingress.build()])
        self.app = InProcessApplication.of(program, seed)

    def see(self, ctx: Context) -> None:
        """Note the times that a function sees."""
        if ctx.event_time is not None and ctx.watermark is not None:
            times = ctx.event_time - START, ctx.watermark - START
            self.seen.append((times[0].total_seconds(), times[1].total_seconds()))

    def record(self, text: str, seconds: float, partition: int = 0) -> None:
        """Write a record, and handle it."""
        self.app.produce("in", "Ada", text, timestamp=at(seconds), partition=partition)
        self.app.drain()


def test_a_message_comes_when_the_watermark_has_come_to_its_time() -> None:
    """It does not come before, and its event time is the time for which it was sent."""
    timers = Timers()

    timers.record("a=60", 0)
    timers.record("", 59.999)
    assert timers.fired == []
    timers.record("", 60)

    assert timers.fired == [("a", 60)]


def test_messages_come_in_the_order_of_their_times() -> None:
    """However far the watermark jumps, it does not pass a message that is not delivered."""
    timers = Timers()

    timers.record("c=30.25 a=10 b=20 d=2000000", 0)
    timers.record("", 1000)

    assert timers.fired == [("a", 10), ("b", 20), ("c", 30.25)]
    assert timers.app.watermark == at(1000)
    assert timers.seen[-3:] == [(10, 10), (20, 20), (30.25, 30.25)]


def test_a_time_is_rounded_up_to_a_quarter_of_a_second() -> None:
    """The message comes at the end of the quarter."""
    timers = Timers()

    timers.record("a=10.001", 0)
    timers.record("", 10.249)
    assert timers.fired == []
    timers.record("", 10.25)

    assert timers.fired == [("a", 10.25)]


def test_a_message_for_the_past_comes_at_once() -> None:
    """A time that the watermark has passed is no error."""
    timers = Timers()
    timers.record("", 100)

    timers.record("a=10", 100)

    assert timers.fired == [("a", 10)]


def test_a_message_is_cancelled_until_it_is_due() -> None:
    """A token is used as with send_after, and free again afterwards."""
    timers = Timers()
    timers.record("a=10 b=20", 0)
    timers.record("a", 5)
    timers.record("a=30", 6)

    timers.record("", 40)
    timers.record("b=50", 41)
    timers.record("", 60)

    assert timers.fired == [("b", 20), ("a", 30), ("b", 50)]


def test_messages_come_without_traffic() -> None:
    """With ``follow``, the clock is enough."""
    timers = Timers(follow=True)
    timers.record("a=60", 0)

    timers.app.advance(seconds=59)
    timers.app.drain()
    assert timers.fired == []
    timers.app.advance(seconds=1)
    timers.app.drain()

    assert timers.fired == [("a", 60)]


def test_without_event_time_it_is_refused() -> None:
    """The error names the function and its address, and says what to do."""
    timers = Timers(event_time=False)

    timers.app.produce("in", "Ada", "a=10")
    with pytest.raises(FunctionError, match="ask/Ada: send_at needs event time, which no ingress"):
        timers.app.drain()


def test_a_time_needs_a_time_zone() -> None:
    """Otherwise nobody knows what time it is."""
    functions = StatefulFunctions()

    @functions.bind("com.example/ask")
    def ask(ctx: Context, message: Message) -> None:
        time = START if message.as_string() == "right" else START.replace(tzinfo=None)
        ctx.send_at(time, Address("com.example/ask", "Ada"), "x", "t")

    context = TestContext(ask, functions=functions)
    with pytest.raises(DefinitionError, match="must be a datetime with a time zone"):
        context.deliver("wrong")
    context.deliver("right")

    ada = Address("com.example/ask", "Ada")
    assert context.delayed == [DelayedMessage(timedelta(0), ada, "x", "t", START)]


moments = st.integers(0, 400).map(lambda number: number / 4)
records = st.lists(st.tuples(moments, st.lists(moments, max_size=3)), min_size=1, max_size=8)


@given(records=records, seed=st.integers(0, 3))
def test_all_messages_come_once_and_in_order(
    records: list[tuple[float, list[float]]], seed: int
) -> None:
    """Nothing comes early, twice or never, and no function sees a watermark after a message that is not handled."""
    timers = Timers(seed)
    expected = []
    for index, (time, dues) in enumerate(records):
        names = [(f"{index}-{place}", due) for place, due in enumerate(dues)]
        timers.record(" ".join(f"{name}={due}" for name, due in names), time)
        expected += [each for each in names if each[1] <= 200]
        newest = max(each for each, _ in records[: index + 1])
        assert sorted(timers.fired) == sorted(each for each in expected if each[1] <= newest)

    timers.record("", 200)

    assert sorted(timers.fired) == sorted(expected)
    assert timers.late == []
