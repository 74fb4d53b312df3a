# SPDX-License-Identifier: Apache-2.0
"""Calls that leave their micro-batches, in the schedules of the test kit."""

from __future__ import annotations

from datetime import timedelta

from statefun import Address, Context, KafkaEgress, KafkaEgressMessage, State, StatefulFunctions
from statefun.testing import InProcessApplication, explore

OUT = KafkaEgress.for_id("t/out").with_kafka_address("kafka:9092").build()


class Seen(State):
    """The numbers that an address has seen."""

    numbers: list[int] = []  # noqa: RUF012 - a state's default


def counting() -> StatefulFunctions:
    """Return a coroutine function that keeps what it sees, and sends each number on to another."""
    functions = StatefulFunctions()

    @functions.bind("t/first")
    async def first(ctx: Context, number: int, seen: Seen) -> None:
        seen.numbers.append(number)
        ctx.send(Address("t/second", ctx.address.id), number)
        if number % 3 == 0:
            ctx.send(ctx.address, number + 1)
        if number == 5:
            raise ValueError(number)

    @functions.bind("t/second")
    async def second(ctx: Context, number: int, seen: Seen) -> None:
        seen.numbers.append(number)
        ctx.send(KafkaEgressMessage("t/out", topic="out", key=ctx.address.id, value=str(number)))
        ctx.send_after(timedelta(seconds=1), Address("t/third", ctx.address.id), number)

    @functions.bind("t/third")
    async def third(ctx: Context, number: int, seen: Seen) -> None:
        seen.numbers.append(number)

    return functions


def test_no_message_is_lost_repeated_or_overtaken_whatever_calls_leave() -> None:
    """In all schedules an address handles each message once, and those of one sender in their order."""
    functions = counting()

    def run(app: InProcessApplication) -> None:
        for number in (0, 2, 4, 6, 8):
            for id_ in ("x", "y"):
                app.send("t/first", id_, number)
        app.drain()
        app.advance(timedelta(seconds=2))
        for id_ in ("x", "y"):
            numbers = app.state(Address("t/first", id_))["numbers"]
            assert [each for each in numbers if each % 2 == 0] == [0, 2, 4, 6, 8]
            assert [each for each in numbers if each % 2] == [1, 7]
            assert app.state(Address("t/second", id_)) == {"numbers": numbers}
            assert app.state(Address("t/third", id_)) == {"numbers": numbers}

    explore(run, functions=functions, components=[OUT], crashes=1000)
