# SPDX-License-Identifier: Apache-2.0
"""What the outcome of a task says about each function."""

from __future__ import annotations

from datetime import timedelta

from statefun import (
    Address,
    Context,
    KafkaEgressMessage,
    OnFailure,
    Retry,
    StatefulFunctions,
    StringType,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock, SystemClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.engine.sinks import Sink
from statefun.engine.tallies import BOUNDS
from statefun.protocol.runtime_pb2 import Outcome

MANY = 100


def functions() -> StatefulFunctions:
    """Return a plain and a coroutine function, which send, and others that do nothing; the first one also fails."""
    registry = StatefulFunctions()

    @registry.bind(
        "t.fns/plain",
        renamed_from=["t.fns/former"],
        on_failure=Retry(attempts=2, backoff=timedelta(seconds=1), then=OnFailure.SKIP),
    )
    def plain(ctx: Context, text: str) -> None:
        if text == "bad":
            raise ValueError(text)
        ctx.send(Address("t.fns/awaited", "a"), text)
        ctx.send_after(timedelta(hours=1), Address("t.fns/former", "a"), text, "token")
        ctx.cancel_delayed_message("other")
        ctx.send(KafkaEgressMessage("t/out", topic="out", key="k", value=text))

    @registry.bind("t.fns/awaited")
    async def awaited(ctx: Context, text: str) -> None:
        ctx.send(Address("t.fns/plain", "other"), text)

    registry.register("t.fns/other", lambda _ctx, _message: None)
    registry.register("t.many/*", lambda _ctx, _message: None)
    return registry


def outcome(*rows: tuple[str, str]) -> Outcome:
    """Return the outcome of a task with a row for each typename and text."""
    clock = SystemClock()
    program = Program(functions(), {"t/out": Sink.for_kafka()})
    dispatcher = Dispatcher(
        program,
        BatchClock(clock, clock.now()),
        batch=1,
        delivered_up_to=0,
        concurrency=10,
        immediate=10,
    )
    count = len(rows)
    values = [bytes(StringType.serializer().serialize(text)) for _, text in rows]
    columns = Columns(
        [b"Bob\0t.fns/plain"] * count,
        [StringType.typename] * count,
        values,
        [None] * count,
        [0] * count,
        cell=lambda *_: None,
    )
    groups = [
        Group(b"%d\0%s" % (row, name.encode()), columns, row, row + 1, AddressValues(None), True)
        for row, (name, _) in enumerate(rows)
    ]
    for _ in dispatcher.dispatch(groups, Effects()):
        pass
    return dispatcher.summary()


def test_calls_and_what_they_send_are_counted_by_function() -> None:
    """Delayed messages count when they are sent; names of functions are present ones."""
    found = outcome(*[("t.fns/former", "x")] * 3, *[("t.fns/awaited", "y")] * 2)

    plain, awaited = sorted(found.functions, key=lambda each: -each.invocations)
    assert found.invocations == 5
    assert (plain.typename, plain.invocations) == ("t.fns/plain", 3)
    assert dict(plain.messages) == {"t.fns/awaited": 3, "t.fns/plain": 3}
    assert dict(plain.records) == {"t/out": 3}
    assert (awaited.typename, awaited.invocations) == ("t.fns/awaited", 2)
    assert dict(awaited.messages) == {"t.fns/plain": 2}
    assert sum(plain.durations) == 3
    assert sum(awaited.durations) == 2
    assert len(plain.durations) == len(BOUNDS) + 1
    assert plain.seconds > 0


def test_of_many_calls_some_are_measured_and_count_for_all() -> None:
    """The first sixteen, and then each sixteenth."""
    found = outcome(*[("t.fns/former", "x")] * MANY)

    (plain,) = found.functions
    assert plain.invocations == MANY
    assert sum(plain.durations) == MANY // 16 * 16


def test_functions_that_are_called_in_turns_are_measured_alike() -> None:
    """Keys are sorted by the id first, so that functions with the same ids are called one after the other."""
    found = outcome(*[("t.fns/plain", "x"), ("t.fns/other", "x")] * MANY)

    assert {each.typename: each.invocations for each in found.functions} == {
        "t.fns/plain": MANY,
        "t.fns/other": MANY,
    }
    for each in found.functions:
        assert sum(each.durations) == MANY // 16 * 16


def test_calls_of_one_function_for_a_namespace_count_by_typename() -> None:
    """A program may have one function for all typenames of a namespace."""
    found = outcome(*[("t.many/a", "x"), ("t.many/b", "x")] * 3)

    assert [(each.typename, each.invocations, sum(each.durations)) for each in found.functions] == [
        ("t.many/a", 3, 3),
        ("t.many/b", 3, 3),
    ]


def test_failures_are_counted_by_function_and_code() -> None:
    """And whether they are tried again; a function that only fails is counted, too."""
    found = outcome(*[("t.fns/former", "bad")] * 3)

    (failed,) = found.failed
    assert (failed.typename, failed.code) == ("t.fns/plain", "SF301")
    assert (failed.retried, failed.count) == (True, 3)
    assert found.retries == 3
    (plain,) = found.functions
    assert (plain.invocations, dict(plain.records)) == (3, {})
