# SPDX-License-Identifier: Apache-2.0
"""What a function returns instead of doing it is an error: otherwise, its messages are lost without a word."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    KafkaEgress,
    KafkaIngress,
    Message,
    StatefulFunctions,
    Type,
    make_json_type,
)
from statefun.joins import Table, joined
from statefun.sdk.callables import refuse_coroutine
from statefun.testing import InProcessApplication
from statefun.windows import Tumbling, Window, WindowContext, windowed

OUT = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1").build()
SINK = Address("test/sink", "all")


def traced(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function as many libraries do."""

    @functools.wraps(fun)
    def call(*arguments: Any) -> Any:
        return fun(*arguments)

    return call


def with_sink(received: list[Any]) -> StatefulFunctions:
    """Return a registry with a function that appends the numbers that are sent to it."""
    functions = StatefulFunctions()

    @functions.bind("test/sink")
    def sink(ctx: Context, value: int) -> None:
        received.append(value)

    return functions


class Yields:
    """A callable that yields."""

    def __call__(self, ctx: Context, message: Message) -> Iterator[None]:
        """Yield."""
        ctx.send(SINK, 1)
        yield


class YieldsAsync:
    """A callable that yields in a coroutine."""

    async def __call__(self, ctx: Context, message: Message) -> AsyncIterator[None]:
        """Yield."""
        ctx.send(SINK, 1)
        yield


@traced
def wrapped(ctx: Context, message: Message) -> Iterator[None]:
    """Yield behind a decorator."""
    ctx.send(SINK, 1)
    yield


@pytest.mark.parametrize(
    "fun", [Yields(), YieldsAsync(), wrapped], ids=["object", "async", "wrapped"]
)
def test_a_generator_that_nobody_runs_is_an_error(fun: Any) -> None:
    """It is refused when it is registered, or when it is called; its message is not handled."""
    received: list[Any] = []
    functions = with_sink(received)

    try:
        functions.register("test/f", fun, on_failure="skip")
    except DefinitionError:
        return
    app = InProcessApplication(functions=functions, components=[OUT])
    app.send("test/f", "Ada", 1)
    app.drain()

    assert received or app.skipped


@attrs.frozen
class Left:
    """A record of a stream."""

    number: int


@attrs.frozen
class Right:
    """A record of another stream."""

    number: int


LEFT = make_json_type("test.unawaited/Left", Left)
RIGHT = make_json_type("test.unawaited/Right", Right)


async def pair(ctx: Context, left: Left, right: Right) -> None:
    """Handle a pair."""
    ctx.send(SINK, 1)


def plain_pair(ctx: Context, left: Left, right: Right) -> None:
    """Handle a pair."""
    ctx.send(SINK, 1)


async def changed(ctx: Context, row: Left | None) -> None:
    """Handle a row."""
    ctx.send(SINK, 1)


def plain_changed(ctx: Context, row: Left | None) -> None:
    """Handle a row."""
    ctx.send(SINK, 1)


@pytest.mark.parametrize("kind", ["join", "change"])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_coroutine_that_nobody_awaits_is_an_error(kind: str, is_async: bool) -> None:
    """A handler of a join or a table that returns one fails, and a handler that returns nothing works."""
    received: list[Any] = []
    functions = with_sink(received)
    if kind == "join":
        decorate: Any = joined(
            "test/f", after=timedelta(hours=1), on_failure="skip", functions=functions
        )
        decorate(traced(pair if is_async else plain_pair))
    else:
        table = Table("test/f", Left, on_failure="skip", functions=functions)
        table.on_change(traced(changed if is_async else plain_changed))
    ingress = (
        KafkaIngress.for_id("test/in").with_kafka_address("localhost:1").with_consumer_group_id("g")
    )
    topics: dict[str, Type[Any]] = (
        {"left": LEFT, "right": RIGHT} if kind == "join" else {"left": LEFT}
    )
    for topic, type_ in topics.items():
        ingress = ingress.with_topic(topic, value_type=type_.typename, targets=["test/f"])
    app = InProcessApplication(
        functions=functions, components=[OUT, ingress.with_event_time().build()]
    )
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for topic in topics:
        app.produce(topic, "Ada", '{"number": 1}', timestamp=when)
    app.drain()

    assert bool(received) is not is_async
    assert bool(app.skipped) is is_async


def test_a_generator_beside_a_coroutine_is_an_error() -> None:
    """Also if another handler of its function is a coroutine function."""
    received: list[Any] = []
    functions = with_sink(received)

    @functions.bind("test/f", on_failure="skip")
    async def wait(ctx: Context, value: str) -> None: ...

    @traced
    def count(ctx: Context, value: int) -> Iterator[None]:
        ctx.send(SINK, 1)
        yield

    wait.on(int)(count)
    app = InProcessApplication(functions=functions, components=[OUT])
    app.send("test/f", "Ada", 1)
    app.drain()

    assert app.skipped


class Clicks(Window):
    """The clicks of a window."""

    count: int = 0


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_result_of_a_window_is_not_lost(is_async: bool) -> None:
    """A handler of ``on_close`` that returns a coroutine is an error: the window is gone after the call."""
    received: list[Any] = []
    functions = with_sink(received)

    @windowed("test/f", Tumbling(timedelta(minutes=1)), on_failure="skip", functions=functions)
    def add(ctx: WindowContext, left: Left, clicks: Clicks) -> None:
        clicks.count += 1

    async def close(ctx: WindowContext, clicks: Clicks) -> None:
        ctx.send(SINK, clicks.count)

    def plain_close(ctx: WindowContext, clicks: Clicks) -> None:
        ctx.send(SINK, clicks.count)

    add.on_close(traced(close if is_async else plain_close))
    ingress = (
        KafkaIngress.for_id("test/in")
        .with_kafka_address("localhost:1")
        .with_consumer_group_id("g")
        .with_topic("left", value_type=LEFT.typename, targets=["test/f"])
        .with_event_time()
    )
    app = InProcessApplication(functions=functions, components=[OUT, ingress.build()])
    app.advance(hours=1)
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for minutes in (0, 10, 20):
        app.produce("left", "Ada", '{"number": 1}', timestamp=when + timedelta(minutes=minutes))
        app.drain()

    assert received or app.skipped


@pytest.mark.filterwarnings("ignore:coroutine")
def test_results_that_nobody_runs_are_refused() -> None:
    """Coroutines, other awaitables and generators are; the results of other functions do not matter."""

    class Later:
        def __await__(self) -> Iterator[None]:
            yield

    async def call() -> None: ...

    awaited: list[object] = [call(), Later()]
    for result in awaited:
        with pytest.raises(DefinitionError, match="nobody awaits"):
            refuse_coroutine(result)
    context: Any = None
    generators: list[object] = [Yields()(context, context), YieldsAsync()(context, context)]
    for generator in generators:
        with pytest.raises(DefinitionError, match="nobody runs"):
            refuse_coroutine(generator)
    for other in (None, 5, "text", [1]):
        refuse_coroutine(other)


class Awaited:
    """A callable whose call is a coroutine."""

    def __init__(self, fun: Any) -> None:
        self.fun = fun
        functools.update_wrapper(self, fun)

    async def __call__(self, *arguments: Any) -> None:
        """Call the function."""
        self.fun(*arguments)


def test_objects_with_coroutines_are_refused_where_nobody_awaits_them() -> None:
    """As coroutine functions are, when they are registered."""
    functions = StatefulFunctions()
    table = Table("test/rows", Left, functions=functions)
    asynchronous: Any = Awaited

    def pair(ctx: Context, left: Left, right: Right) -> None: ...

    def changed(ctx: Context, row: Left | None) -> None: ...

    def alone(ctx: Context, left: Left) -> None: ...

    decorate = joined("test/pairs", after=timedelta(hours=1), functions=functions)
    with pytest.raises(DefinitionError, match="must not be a coroutine function"):
        decorate(asynchronous(pair))
    with pytest.raises(DefinitionError, match="must not be a coroutine function"):
        table.on_change(asynchronous(changed))
    with pytest.raises(DefinitionError, match="must not be a coroutine function"):
        decorate(pair).on_unmatched(asynchronous(alone))


def test_an_object_with_a_coroutine_is_joined_with_a_table() -> None:
    """It is awaited, as a coroutine function is."""
    functions = StatefulFunctions()
    table = Table("test/rows", Left, functions=functions)
    received: list[Any] = []

    def take(ctx: Context, right: Right, left: Left | None) -> None:
        received.append((left, right))

    table.join(Awaited(take))
    app = InProcessApplication(functions=functions, components=[OUT])
    app.send("test/rows", "Ada", Right(1))
    app.drain()

    assert received == [(None, Right(1))]
