# SPDX-License-Identifier: Apache-2.0
"""Windows in the test kit, which runs the same engine as Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from statefun import (
    Address,
    BindingError,
    Context,
    DefinitionError,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    LongType,
    Retry,
    State,
    StatefulFunctions,
    TypedValue,
    simple_type,
    state_value,
)
from statefun.sdk.encoding import encoded
from statefun.sdk.values import Values
from statefun.testing import InProcessApplication, TestContext
from statefun.testing.tested import loaded
from statefun.windows import (
    Counted,
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowContext,
    windowed,
)
from statefun.windows.window_values import WindowValues

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
TYPENAME = "com.example/clicks"
ADA = Address(TYPENAME, "Ada")
MINUTE = timedelta(minutes=1)


class Clicks(Window):
    """The clicks of a window."""

    count: int = 0
    texts: list[str] | None = None

    def merge(self, later: Clicks) -> None:
        """Add a later session."""
        self.count += later.count
        self.texts = [*(self.texts or []), *(later.texts or [])]


def at(seconds: float) -> datetime:
    """Return a time after the start of the test's clock."""
    return START + timedelta(seconds=seconds)


def out(ctx: WindowContext, topic: str, value: Any) -> None:
    """Publish a value with the seconds of the window's start and end."""
    start, end = ((each - START).total_seconds() for each in ctx.window)
    text = json.dumps([ctx.address.id, start, end, value])
    ctx.send(KafkaEgressMessage("com.example/out", topic=topic, value=text))


def application(
    kind: Tumbling | Hopping | Session,
    *,
    late: str = "skip",
    updates: bool = False,
    handles_late: bool = False,
    seed: int = 0,
    crashes: Callable[[str], bool] | None = None,
    event_time: bool = True,
    **settings: Any,
) -> InProcessApplication:
    """Return an application that publishes the clicks of each window in the topic ``closed``."""
    functions = StatefulFunctions()

    @windowed(TYPENAME, kind, late=late, functions=functions)
    def add(ctx: WindowContext, text: str, clicks: Clicks) -> None:
        clicks.count += 1
        clicks.texts = [*(clicks.texts or []), text]

    @add.on_close
    def close(ctx: WindowContext, clicks: Clicks) -> None:
        out(ctx, "closed", [clicks.count, sorted(clicks.texts or [])])

    if updates:

        @add.on_update
        def update(ctx: WindowContext, clicks: Clicks) -> None:
            out(ctx, "updates", clicks.count)

    if handles_late:

        @add.on_late
        def handle_late(ctx: WindowContext, text: str) -> None:
            out(ctx, "late", [text, ctx.lateness.total_seconds()])

    return of_functions(functions, seed, crashes, event_time=event_time, **settings)


def of_functions(
    functions: StatefulFunctions,
    seed: int = 0,
    crashes: Callable[[str], bool] | None = None,
    *,
    event_time: bool = True,
    **settings: Any,
) -> InProcessApplication:
    """Return an application with functions, and an ingress for the one with windows."""
    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=[TYPENAME], valueFormat={"type": "text"})
    )
    if event_time:
        defaults = {"out_of_order": timedelta(0), "max_future": timedelta(days=9)}
        ingress.with_event_time(**{**defaults, **settings})
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_option("deadLetterTopic", "dead")
        .build()
    )
    program = loaded(None, None, functions, [ingress.build(), egress])
    return InProcessApplication.of(program, seed, crashes=crashes)


def click(
    app: InProcessApplication, seconds: float, text: str = "x", key: str = "Ada", partition: int = 0
) -> None:
    """Write a record, and handle it."""
    app.produce("in", key, text, timestamp=at(seconds), partition=partition)
    app.drain()


def published(app: InProcessApplication, topic: str = "closed") -> list[Any]:
    """Return what was published in a topic."""
    return [record.json() for record in app.egress(topic)]


def test_a_window_closes_at_its_end() -> None:
    """It has the records from its start until before its end, and its state is gone afterwards."""
    app = application(Tumbling(MINUTE))

    for seconds in (0, 59.999, 60):
        click(app, seconds, str(seconds))

    assert published(app) == [["Ada", 0, 60, [2, ["0", "59.999"]]]]
    assert [name for name in app.state(ADA) if "@" in name] == [
        f"count@{round(at(60).timestamp() * 1000)}",
        f"texts@{round(at(60).timestamp() * 1000)}",
    ]
    click(app, 120, key="Bob")
    assert app.addresses() == {Address(TYPENAME, "Bob")}


def test_windows_close_without_traffic() -> None:
    """With ``follow``, the last windows close although no record comes."""
    app = application(Tumbling(MINUTE), when_all_idle="follow", idle=timedelta(seconds=5))

    click(app, 3)
    app.advance(minutes=1)
    app.drain()

    assert published(app) == [["Ada", 0, 60, [1, ["x"]]]]


def test_grace_waits_for_late_records() -> None:
    """Records count until the watermark has passed the end of the window by the grace."""
    app = application(Tumbling(MINUTE, grace=timedelta(seconds=10)))

    for seconds in (0, 69, 1, 70, 2):
        click(app, seconds, str(seconds))

    assert published(app) == [["Ada", 0, 60, [2, ["0", "1"]]]]
    assert len(app.skipped) == 1
    assert (
        "clicks/Ada: a message is late by 0:00:00: its window from 2026-01-01T00:00:00"
        in (app.skipped[0])
    )


def test_late_records_become_dead_letters() -> None:
    """The letter has the record, and the error names the window."""
    app = application(Tumbling(MINUTE), late="dead-letter")

    click(app, 90)
    click(app, 3, "late")

    [letter] = app.dead_letters()
    assert (letter.code, letter.value) == ("SF309", b"late")
    assert "late by 0:00:30" in letter.message


def test_late_records_have_a_handler() -> None:
    """It gets the window and the lateness."""
    app = application(Tumbling(MINUTE), handles_late=True)

    click(app, 90)
    click(app, 3, "late")

    assert published(app, "late") == [["Ada", 0, 60, ["late", 30]]]
    assert app.skipped == []


def test_hopping_windows_overlap() -> None:
    """A record counts in each window that has its time; one that is late for some counts in the others."""
    app = application(Hopping(3 * MINUTE, every=MINUTE), handles_late=True)

    for seconds in (125, 185, 150, 900):
        click(app, seconds, str(seconds))

    assert published(app) == [
        ["Ada", 0, 180, [1, ["125"]]],
        ["Ada", 60, 240, [3, ["125", "150", "185"]]],
        ["Ada", 120, 300, [3, ["125", "150", "185"]]],
        ["Ada", 180, 360, [1, ["185"]]],
    ]
    assert published(app, "late") == [["Ada", 0, 180, ["150", 5]]]


def test_a_session_ends_after_a_gap() -> None:
    """Records with less than the gap between them belong together; a record between two sessions joins them."""
    app = application(Session(MINUTE, grace=timedelta(minutes=5)))

    for seconds in (100, 160, 10, 219, 69, 40, 500, 1000):
        click(app, seconds, str(seconds))

    assert published(app) == [
        ["Ada", 10, 160, [4, ["10", "100", "40", "69"]]],
        ["Ada", 160, 279, [2, ["160", "219"]]],
        ["Ada", 500, 560, [1, ["500"]]],
    ]


def test_each_change_can_be_published() -> None:
    """The handler of updates sees the window after each of its messages."""
    app = application(Tumbling(MINUTE), updates=True)

    for seconds in (1, 2, 61):
        click(app, seconds)

    assert published(app, "updates") == [
        ["Ada", 0, 60, 1],
        ["Ada", 0, 60, 2],
        ["Ada", 60, 120, 1],
    ]


def test_the_time_may_come_from_the_value() -> None:
    """Results of windows are counted in longer windows by the time in the result."""
    functions = StatefulFunctions()
    totals = []

    class Total(Window):
        clicks: int = 0

    @windowed(TYPENAME, Tumbling(MINUTE), functions=functions)
    def add(ctx: WindowContext, text: str, clicks: Clicks) -> None:
        clicks.count += 1

    @add.on_close
    def close(ctx: WindowContext, clicks: Clicks) -> None:
        start = ctx.window.start.timestamp()
        ctx.send(Address("com.example/total", "all"), [start, clicks.count])

    @windowed(
        "com.example/total",
        Tumbling(3 * MINUTE, grace=timedelta(seconds=1)),
        time=lambda result: datetime.fromtimestamp(result[0], timezone.utc),
        functions=functions,
    )
    def total(ctx: WindowContext, result: list[float], window: Total) -> None:
        window.clicks += int(result[1])

    @total.on_close
    def close_total(ctx: WindowContext, window: Total) -> None:
        totals.append((round((ctx.window.start - START).total_seconds()), window.clicks))

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=[TYPENAME], valueFormat={"type": "text"})
        .with_event_time(out_of_order=timedelta(0), max_future=timedelta(days=1))
        .build()
    )
    app = InProcessApplication(functions=functions, components=[ingress])
    for seconds in (10, 70, 80, 130, 190, 3600):
        app.produce("in", f"user {seconds % 3}", "x", timestamp=at(seconds))
    app.drain()
    app.produce("in", "user", "x", timestamp=at(7200))
    app.drain()

    assert totals == [(0, 4), (180, 1), (3600, 1)]


def test_a_message_without_event_time_is_refused() -> None:
    """It belongs to no window."""
    app = application(Tumbling(MINUTE), late="fail")
    app.send(TYPENAME, "Ada", "x")

    app.drain()

    [letter] = app.dead_letters()
    assert "clicks/Ada: the message has no event time, so it belongs to no window" in letter.message


def test_a_window_whose_handler_has_failed_closes_at_a_replay() -> None:
    """The dead letter of the wake-up has no event time: the watermark says which windows close."""
    functions = StatefulFunctions()
    is_broken = [True]

    @windowed(TYPENAME, Tumbling(MINUTE), functions=functions)
    def add(ctx: WindowContext, text: str, clicks: Clicks) -> None:
        clicks.count += 1

    @add.on_close
    def close(ctx: WindowContext, clicks: Clicks) -> None:
        if is_broken:
            raise ValueError("broken")
        out(ctx, "closed", clicks.count)

    app = of_functions(functions)
    click(app, 10)
    click(app, 70, key="Bob")
    [letter] = app.dead_letters()
    is_broken.clear()
    wake_up = simple_type("io.statefun.python/window-wake-up", bytes, bytes)
    app.send(TYPENAME, "Ada", letter.value, wake_up)
    app.drain()

    assert published(app) == [["Ada", 0, 60, 1]]
    assert app.addresses() == {Address(TYPENAME, "Bob")}


def test_a_renamed_value_keeps_what_is_stored() -> None:
    """A window that was opened before the change has its value under the new name; nothing of it stays when it closes."""

    class Renamed(Window):
        number: int = state_value(default=0, renamed_from="count")

    stored = {f"{name}@7": encoded(3, LongType) for name in ("count", "former")}
    stored["count@17"] = stored["count@7"]
    values, states = Values({}, stored), WindowValues(Renamed)

    window = states.read(values, 7)
    assert isinstance(window, Renamed)
    window.number += 1
    states.store(window, values, 7)

    assert values.changed.keys() == {"count@7", "number@7"}
    assert states.read(values, 7) == Renamed(number=4)
    states.delete(values, [7])
    assert values.changed == {"count@7": None, "number@7": None, "former@7": None}


def test_windows_of_a_former_size_close_as_they_are() -> None:
    """After a change of the size, no record is counted in a window that does not have its time."""
    functions = StatefulFunctions()

    @windowed(TYPENAME, Tumbling(MINUTE), functions=functions)
    def add(ctx: WindowContext, text: str, clicks: Clicks) -> None:
        clicks.count += 1

    @add.on_close
    def close(ctx: WindowContext, clicks: Clicks) -> None:
        out(ctx, "closed", clicks.count)

    app = of_functions(functions)
    click(app, 30)
    function = functions.find(TYPENAME)
    assert function is not None
    calls: Any = function.fun
    calls._windows = Tumbling(2 * MINUTE).assigner()  # noqa: SLF001 - as a changed program has it
    for seconds in (50, 90, 150):
        click(app, seconds)

    assert published(app) == [["Ada", 0, 60, 1], ["Ada", 0, 120, 2]]


@pytest.mark.parametrize("late", ["sometimes", None, Retry(2, MINUTE)])
def test_an_ill_formed_policy_for_late_messages_is_refused(late: Any) -> None:
    """A late message does not become earlier when it is tried again."""

    def add(ctx: WindowContext, text: str, clicks: Clicks) -> None:
        """Count nothing."""

    text = "the policy for late messages must be skip, dead-letter or fail, not "
    with pytest.raises(DefinitionError, match=rf"add \(.*test_windows.*{text}"):
        windowed(TYPENAME, Tumbling(MINUTE), late=late, functions=StatefulFunctions())(add)


def test_windows_need_event_time() -> None:
    """Otherwise the application does not start."""
    with pytest.raises(
        BindingError, match="clicks has windows or joins streams, but no ingress declares eventTime"
    ):
        application(Tumbling(MINUTE), event_time=False)


def test_a_function_with_windows_is_tested_alone() -> None:
    """The test context shows the values of each window."""
    functions = StatefulFunctions()

    @windowed(TYPENAME, Tumbling(MINUTE), functions=functions)
    def add(ctx: WindowContext, text: str, clicks: Clicks) -> None:
        clicks.count += 1

    context = TestContext(TYPENAME, "Ada", functions=functions)
    context.deliver("x", event_time=at(10))
    context.deliver("x", event_time=at(20))

    assert context.state[f"count@{round(START.timestamp() * 1000)}"] == 2
    assert [each.when for each in context.delayed] == [at(60)]
    assert context.delayed[0].value == TypedValue("io.statefun.python/window-wake-up", b"")


class Plain(State):
    """No window."""

    count: int = 0


class Unmergeable(Window):
    """A window that cannot be joined with another one."""

    count: int = 0


def without_window(ctx: WindowContext, text: str) -> None:
    """Take no window."""


def with_state(ctx: WindowContext, text: str, state: Plain) -> None:
    """Take a state that is no window."""


def unmergeable(ctx: WindowContext, text: str, window: Unmergeable) -> None:
    """Take a window without merge."""


async def coroutine(ctx: WindowContext, text: str, window: Clicks) -> None:
    """Be a coroutine function."""


@pytest.mark.parametrize(
    ("fun", "kind", "text"),
    [
        (without_window, Tumbling(MINUTE), "third parameter that is annotated with a Window"),
        (with_state, Tumbling(MINUTE), "third parameter that is annotated with a Window"),
        (unmergeable, Session(MINUTE), r"Unmergeable needs a method merge\(self, later\)"),
        (coroutine, Tumbling(MINUTE), "must not be a coroutine function"),
        (unmergeable, MINUTE, "must be Tumbling, Hopping, Sliding, Session or Counted"),
    ],
)
def test_an_ill_formed_function_is_refused(fun: Any, kind: Any, text: str) -> None:
    """The error names the function and its file."""
    with pytest.raises(DefinitionError, match=rf"{fun.__name__} \(.*test_windows.*{text}"):
        windowed(TYPENAME, kind, functions=StatefulFunctions())(fun)


class Expiring(Window):
    """A window with a value that expires by itself."""

    count: int = state_value(default=0, expire_after_write=MINUTE)


class Secretive(Window):
    """A window with a value that no command would know to be secret."""

    token: str = state_value(default="", secret=True)


def with_expiry(ctx: WindowContext, text: str, window: Expiring) -> None:
    """Take a window with a value that expires."""


def with_secret(ctx: WindowContext, text: str, window: Secretive) -> None:
    """Take a window with a secret value."""


@pytest.mark.parametrize(
    ("fun", "text"),
    [
        (with_expiry, "'count' of Expiring must not expire"),
        (with_secret, "'token' of Secretive must not be declared with secret=True: annotate it"),
    ],
)
def test_a_value_that_windows_cannot_have_is_refused(fun: Any, text: str) -> None:
    """The error says what to do."""
    with pytest.raises(DefinitionError, match=text):
        windowed(TYPENAME, Tumbling(MINUTE), functions=StatefulFunctions())(fun)


def test_a_window_needs_windowed() -> None:
    """With ``function``, it would be one state that never closes."""

    def add(ctx: Context, text: str, clicks: Clicks) -> None:
        """Count nothing."""

    functions = StatefulFunctions()
    with pytest.raises(DefinitionError, match=r"Clicks is a Window, .* with windowed"):
        functions.bind(TYPENAME)(add)
    handle = functions.bind(TYPENAME)(lambda ctx, message: None)
    with pytest.raises(DefinitionError, match=r"Clicks is a Window, .* with windowed"):
        handle.on(str)(add)


async def coroutine_handler(ctx: WindowContext, window: Clicks) -> None:
    """Be a coroutine function, whose result nobody would wait for."""


def first_handler(ctx: WindowContext, window: Clicks) -> None:
    """Be a handler of windows."""


def second_handler(ctx: WindowContext, window: Clicks) -> None:
    """Be another handler of windows."""


def handler_of_one(window: Clicks) -> None:
    """Take too little."""


@pytest.mark.parametrize("name", ["on_close", "on_update", "on_late"])
def test_an_ill_formed_handler_is_refused(name: str) -> None:
    """It would be called without effect, or fail at the end of each window."""

    def add(ctx: WindowContext, text: str, clicks: Clicks) -> None:
        """Count nothing."""

    adds = getattr(windowed(TYPENAME, Tumbling(MINUTE), functions=StatefulFunctions())(add), name)

    with pytest.raises(DefinitionError, match=r"coroutine_handler \(.*must not be a coroutine"):
        adds(coroutine_handler)
    with pytest.raises(DefinitionError, match=r"handler_of_one \(.*its signature is \(window"):
        adds(handler_of_one)
    for _ in range(2):  # a cell of a notebook may run again
        adds(first_handler)
    with pytest.raises(DefinitionError, match=f"another handler of {name} already"):
        adds(second_handler)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tumbling(timedelta(0)),
        lambda: Tumbling(MINUTE, grace=-MINUTE),
        lambda: Tumbling(timedelta(microseconds=1500)),
        lambda: Hopping(MINUTE, every=2 * MINUTE),
        lambda: Hopping(MINUTE, every=timedelta(milliseconds=1)),
        lambda: Session(-MINUTE),
        lambda: Session(timedelta(0)),
        lambda: Sliding(-MINUTE),
        lambda: Hopping(MINUTE, every=timedelta(0)),
        lambda: Tumbling(60),  # type: ignore[arg-type] # on purpose
        lambda: Counted(5, timeout=timedelta(0)),
    ],
)
def test_an_ill_formed_kind_is_refused(make: Callable[[], Any]) -> None:
    """Sizes are positive, graces are not negative, both are whole milliseconds, and hopping windows are not too many."""
    with pytest.raises(DefinitionError, match="window"):
        make()


def test_results_have_the_trace_of_the_record_that_opened_their_window() -> None:
    """Its headers reach the published records; a record without headers opens windows without them."""
    app = application(Tumbling(MINUTE))
    traced = {"traceparent": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    app.produce("in", "Ada", "x", timestamp=at(10), headers=traced)
    app.produce("in", "Bob", "x", timestamp=at(10))
    app.drain()
    app.produce("in", "Bob", "x", timestamp=at(70))
    app.drain()

    found = {json.loads(each.value or b"")[0]: each.headers for each in app.egress("closed")}
    assert found == {"Ada": traced, "Bob": {}}
