# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import re
from datetime import timedelta
from typing import Any

import pytest

from statefun import (
    Address,
    Context,
    DoubleType,
    KafkaEgress,
    KafkaEgressMessage,
    State,
    StatefulFunctions,
    ValueSpec,
    simple_type,
)
from statefun.testing import InProcessApplication, NotDeterministicError, explore
from statefun.testing.exploring import ScheduleError

AT_LEAST = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1").build()
EXACTLY = (
    KafkaEgress.for_id("test/out")
    .with_kafka_address("localhost:1")
    .with_exactly_once_producer_semantics(timedelta(minutes=1))
    .build()
)
NONE = (
    KafkaEgress.for_id("test/out")
    .with_kafka_address("localhost:1")
    .with_no_producer_semantics()
    .build()
)


class Count(State):
    """A number."""

    count: int = 0


def program(calls: list[str]) -> StatefulFunctions:
    """Return functions that count, in their state and in a list outside of it."""
    functions = StatefulFunctions()

    @functions.bind("t/count")
    def count(ctx: Context, text: str, state: Count) -> None:
        calls.append(text)
        state.count += 1
        ctx.send(KafkaEgressMessage("test/out", topic="out", value=text))

    return functions


def send_three(app: InProcessApplication) -> None:
    """Let the function be called three times."""
    for text in "abc":
        app.send("t/count", "x", text)
        app.drain()
    assert app.state(Address("t/count", "x")) == {"count": 3}


def test_state_and_exactly_once_records_survive_every_crash() -> None:
    """Nothing is lost and nothing comes twice, in ten thousand schedules."""

    def test(app: InProcessApplication) -> None:
        send_three(app)
        assert [record.text for record in app.egress("out")] == ["a", "b", "c"]

    explore(test, functions=program([]), components=[EXACTLY], crashes=10_000)


def test_at_least_once_records_may_come_twice() -> None:
    """The first schedule that shows it has one crash, and says where."""

    def test(app: InProcessApplication) -> None:
        send_three(app)
        assert {record.text for record in app.egress("out")} == {"a", "b", "c"}
        assert len(app.egress("out")) == 3

    with pytest.raises(ScheduleError) as raised:
        explore(test, functions=program([]), components=[AT_LEAST], crashes=1000)

    first, second, *_ = str(raised.value).splitlines()
    assert first.startswith("the test fails in schedule ")
    assert first.endswith(", publishing to test/out")
    assert first.count("micro-batch") == 1
    assert second.startswith("AssertionError: ")


def test_a_schedule_can_be_tried_again() -> None:
    """By its number; failures of pytest count, and skips do not."""

    def test(app: InProcessApplication) -> None:
        send_three(app)
        if len(app.egress("out")) > 3:
            pytest.fail("too many")

    options: dict[str, Any] = {"functions": program([]), "components": [AT_LEAST]}
    with pytest.raises(ScheduleError, match="too many") as raised:
        explore(test, **options)
    found = re.search(r"in schedule (\d+)", str(raised.value))
    assert found is not None
    with pytest.raises(ScheduleError) as again:
        explore(test, **options, schedule=int(found[1]))
    assert str(again.value) == str(raised.value)
    with pytest.raises(pytest.skip.Exception):
        explore(lambda app: pytest.skip("not now"), **options)


def test_records_without_a_guarantee_may_be_lost() -> None:
    """When the application crashes before they are sent."""

    def test(app: InProcessApplication) -> None:
        send_three(app)
        assert len(app.egress("out")) >= 3

    with pytest.raises(ScheduleError):
        explore(test, functions=program([]), components=[NONE], crashes=1000)


def test_what_is_kept_outside_of_the_state_comes_twice() -> None:
    """Functions run again after a crash before the commit."""
    calls: list[str] = []

    def test(app: InProcessApplication) -> None:
        calls.clear()
        send_three(app)
        assert len(calls) == 3

    with pytest.raises(ScheduleError, match="crashes: micro-batch 1, before its commit"):
        explore(test, functions=program(calls), components=[EXACTLY], crashes=100)


def test_functions_that_do_something_else_each_time_are_found() -> None:
    """With the name of the value, address and function; also coroutines, and what they send."""
    functions = StatefulFunctions()
    generator = random.Random(1)

    @functions.bind("t/random")
    def plain(ctx: Context, text: str, state: Count) -> None:
        state.count = generator.randrange(10**9)

    @functions.bind("t/sends")
    async def sends(ctx: Context, text: str) -> None:
        ctx.send(Address("t/random", f"{generator.randrange(10**9)}"), text)

    @functions.bind("t/same")
    def same(ctx: Context, text: str, state: Count) -> None:
        state.count += 1
        ctx.send_after(timedelta(hours=1), ctx.address, text)

    app = InProcessApplication(functions=functions, components=[AT_LEAST], twice=True)
    app.send("t/same", "x", "fine")
    app.drain()
    app.send("t/random", "x", "differs")
    with pytest.raises(NotDeterministicError) as raised:
        app.drain()
    assert "function t/random at address t/random/x is not deterministic" in str(raised.value)
    assert re.search(
        r"value 'count' was \d+ \(io.statefun.types/long\) in the first call, and",
        str(raised.value),
    )

    class Odd:
        """Its objects are never equal."""

    odd = simple_type("test.exploring/Odd", lambda _: b"odd", lambda _: Odd())

    @functions.bind("t/odd", [ValueSpec("odd", odd), ValueSpec("nan", DoubleType)])
    def keeps(ctx: Context, text: str) -> None:
        ctx.storage.odd = Odd()
        ctx.storage.nan = float("nan")

    app = InProcessApplication(functions=functions, components=[AT_LEAST], twice=True)
    app.send("t/odd", "x", "fine")
    app.drain()

    app = InProcessApplication(functions=functions, components=[AT_LEAST], twice=True)
    app.send("t/sends", "x", "differs")
    with pytest.raises(NotDeterministicError, match="message 1 was 't/random', "):
        app.drain()
