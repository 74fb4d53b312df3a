# SPDX-License-Identifier: Apache-2.0
"""Windows that share panes, and windows of a number of records, in the test kit."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from statefun import DefinitionError, FunctionError, KafkaIngress, StatefulFunctions
from statefun.testing import InProcessApplication, TestContext
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
from statefun.windows.pane_windows import PaneWindows

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
TYPENAME = "com.example/sums"


class Sums(Window):
    """The sum and the number of a window's values."""

    total: int = 0
    count: int = 0

    def merge(self, later: Sums) -> None:
        """Add later values."""
        self.total += later.total
        self.count += later.count


class Bare(Window):
    """The same values, without ``merge``."""

    total: int = 0
    count: int = 0


class Closed(list[tuple[str, float, float, int, int]]):
    """The id, start, end, total and count of closed windows."""


def with_class(
    kind: Any,
    class_: type[Window],
    closed: Closed,
    shown: Closed | None = None,
    every: timedelta | None = None,
) -> StatefulFunctions:
    """Return a function that adds values to windows of this class."""
    functions = StatefulFunctions()

    def add(ctx: WindowContext, value: str, sums: Sums) -> None:
        sums.total += int(value)
        sums.count += 1

    def note(results: Closed, ctx: WindowContext, sums: Sums) -> None:
        start, end = ((each - START).total_seconds() for each in ctx.window)
        results.append((ctx.address.id, start, end, sums.total, sums.count))

    add.__annotations__["sums"] = class_
    function = windowed(TYPENAME, kind, functions=functions)(add)

    def close(ctx: WindowContext, sums: Window) -> None:
        note(closed, ctx, cast("Sums", sums))

    function.on_close(close)
    if shown is not None:

        def show(ctx: WindowContext, sums: Window) -> None:
            note(shown, ctx, cast("Sums", sums))

        (function.on_update if every is None else function.on_update(every=every))(show)
    return functions


def functions_of(kind: Any, closed: Closed, shown: Closed | None = None) -> StatefulFunctions:
    """Return a function that adds values."""
    return with_class(kind, Sums, closed, shown)


def application(functions: StatefulFunctions, **settings: Any) -> InProcessApplication:
    """Return an application whose records go to the function."""
    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=[TYPENAME], valueFormat={"type": "text"})
        .with_event_time(
            **{"max_future": timedelta(days=9), "out_of_order": 0 * SECOND, **settings}
        )
        .build()
    )
    return InProcessApplication(functions=functions, components=[ingress])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 99)), min_size=1))
def test_sliding_windows_are_those_of_pandas(records: list[tuple[int, int, int]]) -> None:
    """Each time has the sum of the values until then, less than the size before, whatever the order of the records."""
    closed = Closed()
    app = application(functions_of(Sliding(5 * SECOND), closed), out_of_order=10 * SECOND)
    now, times = 0, []
    for seconds, behind, value in records:
        now += seconds
        times.append(START + (now - behind) * SECOND)
        app.produce("in", "a", str(value), timestamp=times[-1])
    app.produce("in", "b", "0", timestamp=START + (now + 60) * SECOND)
    app.drain()

    values = pd.Series([value for *_, value in records], index=pd.DatetimeIndex(times)).sort_index()
    expected = values.rolling("5s").sum().groupby(level=0).last()
    assert [total for id_, *_, total, _ in closed if id_ == "a"] == [*expected]
    ends = [START + timedelta(seconds=end) - timedelta(milliseconds=1) for _, _, end, *_ in closed]
    assert ends == [*expected.index]


def test_the_state_is_bounded_by_panes() -> None:
    """A record of a hopping window is stored once, though it belongs to six windows; all panes are forgotten."""
    functions = functions_of(Hopping(60 * SECOND, every=10 * SECOND), Closed())
    context = TestContext(TYPENAME, "a", functions=functions)

    for seconds in (1, 2, 15):
        context.deliver("1", event_time=START + seconds * SECOND)
    sums = {name: value for name, value in context.state.items() if name.startswith("count@")}
    assert sorted(sums.values()) == [1, 2]

    app = application(functions)
    for seconds in range(0, 300, 7):
        app.produce("in", "a", "1", timestamp=START + seconds * SECOND)
        app.drain()
        [address] = app.addresses()
        assert len([name for name in app.state(address) if name.startswith("count@")]) <= 8
    app.produce("in", "b", "1", timestamp=START + 900 * SECOND)
    app.drain()
    assert [each.id for each in app.addresses()] == ["b"]


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (
            Hopping(20 * SECOND, every=10 * SECOND, grace=60 * SECOND),
            Hopping(20 * SECOND, every=10 * SECOND),
        ),
        (Hopping(60 * SECOND, every=20 * SECOND), Hopping(60 * SECOND, every=15 * SECOND)),
        (Hopping(60 * SECOND, every=20 * SECOND), Hopping(20 * SECOND, every=5 * SECOND)),
        (Sliding(60 * SECOND), Sliding(10 * SECOND, grace=90 * SECOND)),
    ],
)
def test_records_of_a_former_kind_are_counted(former: Any, present: Any) -> None:
    """After a change of sizes or a shorter grace, a pane is still in a window that closes."""
    closed = Closed()
    functions = functions_of(former, closed)
    app = application(functions)
    app.produce("in", "a", "1", timestamp=START + 41 * SECOND)
    app.drain()
    go_on(functions, functions_of(present, closed))
    app.produce("in", "b", "1", timestamp=START + 900 * SECOND)
    app.drain()

    assert closed
    assert {(id_, total) for id_, _, _, total, _ in closed} == {("a", 1)}
    assert [each.id for each in app.addresses()] == ["b"]


def test_updates_of_windows_with_panes() -> None:
    """After each message, each open window of it is shown, merged from its panes."""
    shown = Closed()
    app = application(functions_of(Hopping(4 * SECOND, every=2 * SECOND), Closed(), shown))

    for seconds in (1, 3):
        app.produce("in", "a", "5", timestamp=START + seconds * SECOND)
        app.drain()

    assert shown == [
        ("a", -2, 2, 5, 1),
        ("a", 0, 4, 5, 1),
        ("a", 0, 4, 10, 2),
        ("a", 2, 6, 5, 1),
    ]


def test_the_running_sum_of_a_sliding_window() -> None:
    """Updates show the window of each record at once."""
    shown = Closed()
    app = application(functions_of(Sliding(5 * SECOND), Closed(), shown))

    for seconds in (1, 3, 5, 7, 20):
        app.produce("in", "a", "1", timestamp=START + seconds * SECOND)
        app.drain()

    assert [total for *_, total, _ in shown] == [1, 2, 3, 3, 1]


@given(st.lists(st.sampled_from("ab"), max_size=20), st.integers(1, 4))
def test_counted_windows_have_so_many_records(keys: list[str], size: int) -> None:
    """They close with their last record, in the order of records, whatever their times are."""
    closed = Closed()
    app = application(functions_of(Counted(size), closed))
    for number, key in enumerate(keys):
        app.produce("in", key, str(number), timestamp=START + (number * 7 % 5) * SECOND)
    app.drain()

    expected = defaultdict(list)
    for key, group in itertools.groupby(
        sorted(enumerate(keys), key=lambda each: each[1]), lambda each: each[1]
    ):
        numbers = [number for number, _ in group]
        for first in range(0, len(numbers) - size + 1, size):
            expected[key].append(sum(numbers[first : first + size]))
    for key in "ab":
        assert [total for id_, *_, total, _ in closed if id_ == key] == expected[key]
    rest = {key for key in "ab" if keys.count(key) % size}
    assert {each.id for each in app.addresses()} == rest


def test_a_counted_window_closes_after_its_timeout() -> None:
    """The timeout counts from the first record; the next record opens another window, however old it is."""
    closed = Closed()
    app = application(functions_of(Counted(3, timeout=10 * SECOND), closed))

    for key, seconds in (("a", 5), ("a", 6), ("a", 7), ("a", 8), ("a", 4), ("b", 30), ("a", 2)):
        app.produce("in", key, "1", timestamp=START + seconds * SECOND)
        app.drain()

    found = [(start, total) for id_, start, _, total, _ in closed if id_ == "a"]
    assert found == [(5, 3), (4, 2), (2, 1)]


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_an_ill_formed_number_of_records_is_refused(size: Any) -> None:
    """A counted window has at least one record."""
    with pytest.raises(DefinitionError, match="size of a counted window must be a positive number"):
        Counted(size)


@pytest.mark.parametrize("kind", [Sliding(SECOND), Counted(3), Hopping(SECOND, every=SECOND)])
def test_functions_can_be_sent_to_workers(kind: Any) -> None:
    """Spark pickles functions by value if their module is not a file of the program."""
    pickled = cloudpickle.dumps(functions_of(kind, Closed()))  # type: ignore[no-untyped-call] # as pyspark has it
    sent = cloudpickle.loads(pickled)

    assert [str(function.typename) for function in sent] == [TYPENAME]


def go_on(functions: StatefulFunctions, changed: StatefulFunctions) -> None:
    """Use the function of a changed program from now on."""
    functions.replace(changed.for_typename(TYPENAME))


@pytest.mark.parametrize("every", [10, 20])
@given(
    before=st.lists(st.integers(0, 39), min_size=1, max_size=6),
    after=st.lists(st.integers(0, 39), max_size=6),
    interval=st.sampled_from([None, 5]),
)
def test_windows_from_before_their_class_could_merge(
    every: int, before: list[int], after: list[int], interval: int | None
) -> None:
    """Each window closes once, with the records from before and after the change of the program."""
    kind = Hopping(20 * SECOND, every=every * SECOND, grace=60 * SECOND)
    closed, shown = Closed(), Closed()
    early: dict[str, Any] = {} if interval is None else {"shown": shown, "every": interval * SECOND}
    functions = with_class(kind, Bare, closed, **early)
    app = application(functions, out_of_order=0 * SECOND)
    for seconds in before:
        app.produce("in", "a", "1", timestamp=START + seconds * SECOND)
    app.drain()
    go_on(functions, with_class(kind, Sums, closed, **early))
    for seconds in after:
        app.produce("in", "a", "1", timestamp=START + seconds * SECOND)
        app.drain()
    app.produce("in", "b", "1", timestamp=START + 900 * SECOND)
    app.drain()

    expected: Counter[tuple[float, float]] = Counter()
    for seconds in [*before, *after]:
        expected.update((s, s + 20) for s in range(-20, 60, every) if s <= seconds < s + 20)
    own = [each for each in closed if each[0] == "a"]
    assert {(start, end): total for _, start, end, total, _ in own} == expected
    assert len(own) == len(expected)
    assert [each.id for each in app.addresses()] == ["b"]
    last = {(start, end): total for id_, start, end, total, _ in shown if id_ == "a"}
    assert all(total <= expected[window] for window, total in last.items())


KINDS: list[tuple[Any, type[Window]]] = [
    *((Hopping(20 * SECOND, every=10 * SECOND, grace=grace * SECOND), Sums) for grace in (0, 15)),
    (Hopping(20 * SECOND, every=10 * SECOND), Bare),
    (Hopping(20 * SECOND, every=10 * SECOND, offset=3 * SECOND), Sums),
    (Hopping(30 * SECOND, every=20 * SECOND), Sums),
    (Hopping(10 * SECOND, every=5 * SECOND, grace=15 * SECOND), Bare),
    (Hopping(20 * SECOND, every=20 * SECOND), Sums),
    *((Tumbling(20 * SECOND, grace=grace * SECOND), Sums) for grace in (0, 15)),
    (Tumbling(10 * SECOND), Bare),
    *((Sliding(20 * SECOND, grace=grace * SECOND), Sums) for grace in (0, 15)),
    (Session(20 * SECOND), Sums),
]


def expected_windows(kind: Any, time: int) -> list[tuple[float, float]]:
    """Return the windows of a record, by plain arithmetic in seconds."""
    size = kind.size.total_seconds()
    if isinstance(kind, Sliding):
        return [(time + 0.001 - size, time + 0.001)]
    every = kind.every.total_seconds() if isinstance(kind, Hopping) else size
    starts = np.arange(-60 * every + kind.offset.total_seconds() % every, 200, every)
    return [(start, start + size) for start in starts.tolist() if start <= time < start + size]


def name_of(kind: Any) -> tuple[float, ...]:
    """Return what two kinds have in common whose windows are the same."""
    size = kind.size.total_seconds()
    if isinstance(kind, Sliding):
        return (size,)
    every = kind.every.total_seconds() if isinstance(kind, Hopping) else size
    return size, every, kind.offset.total_seconds() % every


def sliding_total(end: float, records: list[tuple[Any, int]], kind: Any) -> int:
    """Return how many of the records that came for a sliding kind are in its window with this end."""
    size = kind.size.total_seconds()
    own = [time for each, time in records if name_of(each) == name_of(kind)]
    return sum(end - size <= time < end for time in own)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([each for each in KINDS if not isinstance(each[0], Session)]),
            st.lists(st.integers(0, 12), max_size=4),
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_windows_close_once_whatever_the_program_becomes(
    steps: list[tuple[tuple[Any, type[Window]], list[int]]], is_early: bool
) -> None:
    """A window closes once, with all records that came for it, as what it was opened for."""
    closed, now = Closed(), 0
    records: list[tuple[Any, int]] = []
    early: dict[str, Any] = {"shown": Closed(), "every": 5 * SECOND} if is_early else {}
    functions = with_class(*steps[0][0], closed, **early)
    app = application(functions)
    for (kind, class_), waits in steps:
        # Without merge, panes that are open could not close.
        go_on(functions, with_class(kind, Sums if records else class_, closed, **early))
        for wait in waits:
            now += wait
            records.append((kind, now))
            app.produce("in", "a", "1", timestamp=START + now * SECOND)
            app.drain()
    app.produce("in", "b", "1", timestamp=START + 10_000 * SECOND)
    app.drain()

    expected: Counter[tuple[Any, float, float]] = Counter()
    for kind, time in records:
        for start, end in expected_windows(kind, time):
            if isinstance(kind, Sliding):
                expected[name_of(kind), start, end] = sliding_total(end, records, kind)
            else:
                expected[name_of(kind), start, end] += 1
    rounded = [
        (round(start, 3), round(end, 3), total)
        for _, start, end, total in ((0, *each[1:4]) for each in closed)
    ]
    assert sorted(rounded) == sorted(
        (round(start, 3), round(end, 3), total) for (_, start, end), total in expected.items()
    )
    assert [each.id for each in app.addresses()] in (["b"], [])


@pytest.mark.parametrize("former", KINDS)
@pytest.mark.parametrize("present", KINDS)
def test_every_kind_can_follow_every_other_one(
    former: tuple[Any, type[Window]], present: tuple[Any, type[Window]]
) -> None:
    """All records are in windows that close, and nothing is left; or there is an error with a way out."""
    closed = Closed()
    functions = with_class(*former, closed)
    app = application(functions)
    for seconds in (5, 6):
        app.produce("in", "a", "1", timestamp=START + seconds * SECOND)
    app.drain()
    before = [*closed]
    go_on(functions, with_class(*present, closed))
    app.produce("in", "a", "1", timestamp=START + 7 * SECOND)
    app.produce("in", "b", "1", timestamp=START + 900 * SECOND)
    has_panes = isinstance(functions_of(former[0], closed).for_typename(TYPENAME).fun, PaneWindows)
    if has_panes and former[1] is Sums and present[1] is Bare:
        with pytest.raises(
            FunctionError, match=r"no method merge\(self, later\) any more. Nothing was changed"
        ):
            app.drain()
        assert closed == before
        go_on(functions, with_class(*former, closed))
    app.drain()

    assert {id_ for id_, *_ in closed} == {"a"}
    assert [each.id for each in app.addresses()] == ["b"]


@pytest.mark.parametrize("is_counted_first", [True, False])
def test_counted_windows_and_others_do_not_follow_each_other(is_counted_first: bool) -> None:
    """An open window that would stay for ever is an error, after which the former program goes on."""
    closed = Closed()
    kinds: list[Any] = [Counted(2, timeout=10 * SECOND), Tumbling(20 * SECOND)]
    former, present = kinds if is_counted_first else reversed(kinds)
    functions = with_class(former, Sums, closed)
    app = application(functions)
    app.produce("in", "a", "1", timestamp=START + 5 * SECOND)
    app.drain()
    go_on(functions, with_class(present, Sums, closed))
    app.produce("in", "b", "1", timestamp=START + 900 * SECOND)
    with pytest.raises(
        FunctionError, match="windows that are open cannot be closed: the function had"
    ):
        app.drain()
    go_on(functions, with_class(former, Sums, closed))
    app.drain()

    assert [(id_, total) for id_, _, _, total, _ in closed if id_ == "a"] == [("a", 1)]
