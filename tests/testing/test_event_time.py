# SPDX-License-Identifier: Apache-2.0
"""Event time and the watermark as functions see them, in the test kit, which runs the same engine as Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from statefun import (
    Address,
    Context,
    KafkaEgress,
    KafkaIngress,
    Message,
    OnFailure,
    RecordError,
    StatefulFunctions,
)
from statefun.testing import InProcessApplication
from statefun.testing.tested import loaded

SEEN = "com.example/seen"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def at(seconds: float) -> datetime:
    """Return a time after the start of the test's clock."""
    return START + timedelta(seconds=seconds)


def application(
    function: Callable[[Context, Message], Any],
    *others: Callable[[Context, Message], Any],
    failure_policy: OnFailure = OnFailure.FAIL,
    seed: int = 0,
    **settings: Any,
) -> InProcessApplication:
    """Return an application whose function gets the records of the topic ``in``."""
    functions = StatefulFunctions()
    functions.bind(SEEN)(function)
    for other in others:
        functions.bind(f"com.example/{other.__name__}")(other)
    settings = {"out_of_order": timedelta(seconds=5), **settings}
    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=[SEEN], valueFormat={"type": "text"})
        .with_failure_policy(failure_policy)
        .with_event_time(**settings)
        .build()
    )
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_option("deadLetterTopic", "dead")
        .build()
    )
    program = loaded(None, None, functions, [ingress, egress])
    return InProcessApplication.of(program, seed, crashes=lambda _: False)  # but calls may leave


class Seen:
    """A function that notes what it sees."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, datetime | None, datetime | None]] = []

    def note(self, ctx: Context, message: Message) -> None:
        """Note a message with its event time, and the watermark."""
        self.notes.append((message.as_string(), ctx.event_time, ctx.watermark))


def watcher(seen: Seen) -> Callable[[Context, Message], None]:
    """Return a function that notes what it sees."""

    def watch(ctx: Context, message: Message) -> None:
        seen.note(ctx, message)

    return watch


def test_a_record_has_its_timestamp_as_event_time() -> None:
    """By default, the event time is the record's timestamp; the first micro-batch has no watermark yet."""
    seen = Seen()
    app = application(watcher(seen))

    app.produce("in", "Ada", "one", timestamp=at(10))
    app.drain()
    app.produce("in", "Ada", "two", timestamp=at(20))
    app.drain()

    assert seen.notes == [("one", at(10), None), ("two", at(20), at(5))]
    assert app.watermark == at(15)


@pytest.mark.parametrize(
    "value",
    ['{"click": {"at": "2026-01-01T00:00:10Z"}}', '{"click": {"at": 1767225610}}'],
)
def test_a_field_of_the_value_has_the_event_time(value: str) -> None:
    """The event time may be in a field of a JSON value: as ISO 8601, or as a number since the epoch."""
    seen = Seen()
    app = application(watcher(seen), field="click.at")

    app.produce("in", "Ada", value)
    app.drain()

    assert seen.notes == [(value, at(10), None)]


@pytest.mark.parametrize(
    "value", ["{}", '{"at": "soon"}', '{"at": true}', "no JSON", '{"at": 1e300}']
)
def test_a_record_without_a_time_follows_the_failure_policy(value: str) -> None:
    """A record whose field is missing or no time is a dead letter, or stops the application; others go on."""
    seen = Seen()
    app = application(watcher(seen), field="at", failure_policy=OnFailure.DEAD_LETTER)

    app.produce("in", "Ada", value)
    app.produce("in", "Ada", '{"at": 1767225610}')
    app.drain()

    [letter] = app.dead_letters()
    assert [text for text, *_ in seen.notes] == ['{"at": 1767225610}']
    assert letter.code == "SF400"
    assert "ingress com.example/in: the record has no event time" in letter.message


def test_a_record_without_a_time_stops_the_application() -> None:
    """If the policy is to fail, the error names the field and the place of the record."""
    app = application(watcher(Seen()), field="at")

    app.produce("in", "Ada", "{}")
    with pytest.raises(RecordError, match=r"missing required field `at`.*topic in, partition 0"):
        app.drain()


def test_a_message_has_the_event_time_of_its_cause() -> None:
    """A message that a function sends has the event time of the message in whose invocation it was sent."""
    seen = Seen()

    def first(ctx: Context, message: Message) -> None:
        ctx.send(Address("com.example/second", "Bob"), message.as_string())

    def second(ctx: Context, message: Message) -> None:
        ctx.send_after(timedelta(hours=1), Address("com.example/third", "Bob"), message.as_string())

    def third(ctx: Context, message: Message) -> None:
        seen.note(ctx, message)

    app = application(first, second, third)
    app.produce("in", "Ada", "one", timestamp=at(10))
    app.produce("in", "Ada", "two", timestamp=at(20))
    app.drain()
    app.advance(hours=1)

    assert [(text, time) for text, time, _ in seen.notes] == [("one", at(10)), ("two", at(20))]


def test_a_message_of_a_cycle_holds_the_watermark() -> None:
    """Records that come later cannot make a message late that is still under way, in a cycle or not."""
    late: list[bool] = []

    def start(ctx: Context, message: Message) -> None:
        if message.as_string() == "go":
            ctx.send(Address("com.example/ping", "Bob"), "5")

    def ping(ctx: Context, message: Message) -> None:
        assert ctx.event_time is not None
        late.append(ctx.watermark is not None and ctx.event_time < ctx.watermark)
        count = int(message.as_string())
        if count:
            ctx.send(Address("com.example/ping", f"Bob {count}"), str(count - 1))

    for seed in range(5):
        app = application(start, ping, seed=seed)
        app.produce("in", "Ada", "go", timestamp=at(10))
        for index in range(20):
            app.produce("in", f"Eve {index}", "x", timestamp=at(10 + 10 * index))
        app.drain()
        assert app.watermark == at(195)

    assert late == [False] * 30


def test_a_message_of_a_long_call_holds_the_watermark() -> None:
    """A message whose call has left its micro-batch, or that waits after it, holds the watermark until it is handled."""
    marks: list[tuple[str, datetime | None]] = []

    async def call(ctx: Context, message: Message) -> None:
        await asyncio.sleep(0)
        ctx.send(Address("com.example/after", ctx.address.id), message.as_string())

    def after(ctx: Context, message: Message) -> None:
        assert ctx.event_time is not None
        assert ctx.watermark is None or ctx.watermark <= ctx.event_time
        marks.append((message.as_string(), ctx.watermark))

    for seed in range(20):
        marks.clear()
        app = application(call, after, seed=seed)
        for index in range(12):
            app.produce("in", f"Ada {index % 3}", str(index), timestamp=at(10 * index))
        app.drain()
        assert sorted(int(text) for text, _ in marks) == list(range(12))
        assert app.watermark == at(105)


def test_a_late_message_is_strictly_before_the_watermark() -> None:
    """A record with exactly the time of the watermark is not late."""
    lateness: list[bool] = []

    def note(ctx: Context, message: Message) -> None:
        assert ctx.event_time is not None
        lateness.append(ctx.watermark is not None and ctx.event_time < ctx.watermark)

    app = application(note)
    for seconds in (100, 95, 94.999):
        app.produce("in", "Ada", "x", timestamp=at(seconds))
        app.drain()

    assert lateness == [False, False, True]


def test_a_record_from_the_future_moves_nothing() -> None:
    """A record beyond ``maxFuture`` reaches its function, but does not make all others late."""
    seen = Seen()
    app = application(watcher(seen), max_future=timedelta(minutes=1))

    app.produce("in", "Ada", "now")
    app.produce("in", "Ada", "2126", timestamp=at(100 * 365 * 86_400))
    app.drain()

    assert [text for text, *_ in seen.notes] == ["now", "2126"]
    assert app.watermark == at(-5)


def test_a_quiet_partition_is_idle_after_a_while() -> None:
    """The watermark does not wait for a partition that has had no records for ``idle``."""
    app = application(watcher(Seen()), idle=timedelta(seconds=30))
    app.produce("in", "Ada", "x", timestamp=at(10), partition=0)
    app.produce("in", "Bob", "x", timestamp=at(50), partition=1)
    app.drain()

    assert app.watermark == at(5)
    app.advance(seconds=29)
    app.produce("in", "Bob", "x", timestamp=at(60), partition=1)
    app.drain()
    assert app.watermark == at(5)
    app.advance(seconds=1)
    assert app.watermark == at(55)


def test_the_watermark_can_follow_the_clock() -> None:
    """With ``follow``, the watermark rises while no records come."""
    app = application(watcher(Seen()), idle=timedelta(seconds=30), when_all_idle="follow")
    app.produce("in", "Ada", "x", timestamp=at(0))
    app.drain()

    app.advance(seconds=29)
    before = app.watermark
    app.advance(minutes=10)

    assert (before, app.watermark) == (at(-5), at(624))


def test_without_event_time_there_is_none() -> None:
    """A message from outside has no event time; an ingress that declares none gives its records none."""
    seen = Seen()
    app = application(watcher(seen))

    app.send(SEEN, "Ada", "hello")
    app.drain()

    assert seen.notes == [("hello", None, None)]
    assert app.watermark is None
