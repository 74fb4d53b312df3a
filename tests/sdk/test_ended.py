# SPDX-License-Identifier: Apache-2.0
"""What the tasks and threads of a call do after the call has ended is no effect of other messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from statefun import (
    Address,
    Context,
    FunctionError,
    KafkaEgress,
    LongType,
    Retry,
    State,
    StatefulFunctions,
    TypedValue,
)
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.testing import InProcessApplication
from statefun.testing import TestContext as OneFunction
from statefun.windows import Tumbling, Window, WindowContext, windowed

OUT = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1").build()
ADA = Address("test/f", "Ada")
SINK = Address("test/sink", "all")


START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Counts(Window):
    """A window."""

    count: int = 0


class Bookings(State):
    """What was booked."""

    count: int = 0


USES: dict[str, Callable[[Context, Bookings], Any]] = {
    "send": lambda ctx, _: ctx.send(SINK, "late"),
    "send_after": lambda ctx, _: ctx.send_after(timedelta(0), SINK, "late"),
    "cancel": lambda ctx, _: ctx.cancel_delayed_message("token"),
    "read": lambda _, bookings: bookings.count,
    "write": lambda _, bookings: setattr(bookings, "count", 5),
    "delete": lambda _, bookings: delattr(bookings, "count"),
    "storage": lambda ctx, _: ctx.storage.count,
    "write storage": lambda ctx, _: setattr(ctx.storage, "count", 5),
    "delete storage": lambda ctx, _: delattr(ctx.storage, "count"),
}


def sink_of(functions: StatefulFunctions) -> list[str]:
    """Register a function that collects texts, and return them."""
    texts: list[str] = []

    @functions.bind("test/sink")
    def sink(ctx: Context, text: str) -> None:
        texts.append(text)

    return texts


def test_a_failed_message_has_no_effects_with_the_next_message() -> None:
    """Asyncio's ``gather`` raises the first exception, and lets its other coroutines go on."""
    functions = StatefulFunctions()
    texts = sink_of(functions)
    tries: list[int] = []
    errors: list[FunctionError] = []
    booked = asyncio.Event()

    async def book(ctx: Context, bookings: Bookings, number: int) -> None:
        await asyncio.sleep(0.02)
        try:
            ctx.send(SINK, f"booked {number}")
            bookings.count += 1
        except FunctionError as error:
            errors.append(error)
        booked.set()

    async def check(number: int) -> None:
        tries.append(number)
        if len(tries) == 1:
            raise ConnectionError("the bank does not answer")

    @functions.bind("test/f", on_failure=Retry(3, timedelta(seconds=1), then="skip"))
    async def pay(ctx: Context, number: int, bookings: Bookings) -> None:
        if number == 1:
            await asyncio.gather(book(ctx, bookings, number), check(number))
        else:
            await booked.wait()

    app = InProcessApplication(functions=functions, components=[OUT])
    for number in (1, 2):
        app.send("test/f", "Ada", number)
    app.advance(seconds=10)

    assert (texts, app.state(ADA)) == (["booked 1"], {"count": 1})
    [error] = errors
    assert error.message == (
        "function test/f at address test/f/Ada: its context is used after the call has ended: await all tasks and threads that "
        "use it before the function returns, also if one of them fails, and keep no context or state for later calls"
    )


def test_a_thread_of_a_call_that_timed_out_has_no_effects() -> None:
    """Nothing ends a thread of ``asyncio.to_thread`` when its call has timed out."""
    functions = StatefulFunctions()
    texts = sink_of(functions)
    ended: list[str] = []

    def blocking(ctx: Context, bookings: Bookings) -> None:
        time.sleep(0.2)
        for use in ("send", "write"):
            with pytest.raises(
                FunctionError, match=r"test/f/Ada.*is used after the call has ended"
            ):
                USES[use](ctx, bookings)
        ended.append("all")

    @functions.bind("test/f", on_failure="skip", timeout=timedelta(seconds=0.1))
    async def pay(ctx: Context, number: int, bookings: Bookings) -> None:
        if number == 1:
            await asyncio.to_thread(blocking, ctx, bookings)
        elif not ended:
            await asyncio.sleep(0.05)

    app = InProcessApplication(functions=functions, components=[OUT])
    for number in range(1, 40):
        app.send("test/f", "Ada", number)
    app.drain()

    assert (len(app.skipped), ended) == (1, ["all"])
    assert (texts, app.state(ADA)) == ([], {})


@pytest.mark.parametrize("use", USES)
def test_a_task_that_a_message_leaves_behind_cannot_act_for_the_next_one(use: str) -> None:
    """Each use of the context or the state is an error that names the address, and has no effect."""
    functions = StatefulFunctions()
    texts = sink_of(functions)
    tasks: list[asyncio.Task[Any]] = []

    @functions.bind("test/f")
    async def call(ctx: Context, number: int, bookings: Bookings) -> None:
        async def later() -> None:
            await asyncio.sleep(0.02)
            USES[use](ctx, bookings)

        if number == 1:
            tasks.append(asyncio.create_task(later()))
            bookings.count = 1
        else:
            bookings.count += 1
            await asyncio.wait(tasks)

    app = InProcessApplication(functions=functions, components=[OUT])
    for number in (1, 2):
        app.send("test/f", "Ada", number)
    app.drain()

    [task] = tasks
    with pytest.raises(FunctionError, match=r"test/f/Ada: .* is used after the call has ended"):
        task.result()
    assert (texts, app.state(ADA)) == ([], {"count": 2})


@pytest.mark.parametrize("use", USES)
def test_a_context_that_is_kept_is_of_no_use(use: str) -> None:
    """This holds for plain functions as well, as soon as the messages of their micro-batch are handled."""
    functions = StatefulFunctions()
    kept: list[Any] = []

    @functions.bind("test/f")
    def call(ctx: Context, number: int, bookings: Bookings) -> None:
        kept.append((ctx, bookings))
        USES[use](*kept[0])

    context = OneFunction("test/f", "Ada", functions=functions)
    context.deliver(1)
    with pytest.raises(FunctionError, match="is used after the call has ended"):
        context.deliver(2)


@pytest.mark.parametrize("use", [use for use in USES if use.startswith(("send", "cancel"))])
def test_the_context_of_a_window_ends_with_its_call(use: str) -> None:
    """The functions of windows get another context than the function of the address has."""
    functions = StatefulFunctions()
    kept: list[Any] = []

    @windowed("test/f", Tumbling(timedelta(hours=1)), time=lambda _: START, functions=functions)
    def add(ctx: WindowContext, number: int, window: Counts) -> None:
        kept.append(ctx)
        USES[use](kept[0], Bookings())

    context = OneFunction("test/f", "Ada", functions=functions)
    context.deliver(1)
    with pytest.raises(FunctionError, match="is used after the call has ended"):
        context.deliver(2)


def test_the_context_of_a_failed_call_ends_as_well() -> None:
    """A server calls the function for another runtime, and gets the exception."""
    functions = StatefulFunctions()
    kept: list[Any] = []

    @functions.bind("test/f")
    def call(ctx: Context, number: int, bookings: Bookings) -> None:
        kept.append((ctx, bookings))
        raise ValueError(number)

    number = LongType.serializer().serialize(1)
    batch = InvocationBatch(ADA, {}, [Invocation(None, TypedValue(LongType.typename, number))])
    with pytest.raises(ValueError, match="1"):
        invoke(functions.for_typename("test/f"), batch, served=True)

    for use in USES.values():
        with pytest.raises(FunctionError, match="is used after the call has ended"):
            use(*kept[0])


def test_the_messages_of_a_batch_see_the_changes_of_those_before() -> None:
    """Changes of a failed message are not seen; changes and messages of all others are kept in their order."""
    functions = StatefulFunctions()
    texts = sink_of(functions)

    @functions.bind("test/f", on_failure="skip")
    async def call(ctx: Context, number: int, bookings: Bookings) -> None:
        await asyncio.sleep(0)
        bookings.count += number
        ctx.send(SINK, f"{number}: {bookings.count}")
        if number == 2:
            raise ValueError(number)

    app = InProcessApplication(functions=functions, components=[OUT])
    for number in (1, 2, 3):
        app.send("test/f", "Ada", number)
    app.drain()

    assert (texts, app.state(ADA)) == (["1: 1", "3: 4"], {"count": 4})
