# SPDX-License-Identifier: Apache-2.0
"""Windows against a model in plain Python: all records, sorted by their times.

Programs are random: records of several keys and partitions out of order, handled in random portions, with pauses,
crashes, and messages that go in a circle before they are counted.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from statefun import (
    Address,
    Context,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    StatefulFunctions,
)
from statefun.testing import InProcessApplication
from statefun.testing.tested import loaded
from statefun.windows import (
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowContext,
    windowed,
)

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
DISORDER = timedelta(seconds=20)
KINDS = [
    Tumbling(timedelta(seconds=30)),
    Tumbling(timedelta(seconds=7), grace=timedelta(seconds=3.1), offset=timedelta(seconds=2)),
    Hopping(timedelta(seconds=30), every=timedelta(seconds=7)),
    Hopping(timedelta(seconds=20), every=timedelta(seconds=8), grace=timedelta(seconds=3)),
    Sliding(timedelta(seconds=12)),
    Sliding(timedelta(seconds=3), grace=timedelta(seconds=5)),
    Session(timedelta(seconds=9)),
    Session(timedelta(seconds=4), grace=timedelta(seconds=6)),
]


@attrs.frozen
class Step:
    """A record, and what happens after it."""

    seconds: float
    """The record's time."""
    behind: float
    """By how much the record is older than that, if records come out of order."""
    key: str
    partition: int
    hops: int
    """How often the message of the record goes on to another address before it is counted."""
    then: str
    """What happens then: ``drain``, ``wait``, or nothing yet."""


steps = st.lists(
    st.builds(
        Step,
        st.floats(0, 20).map(lambda seconds: round(seconds, 1)),
        st.sampled_from([0, 0, 1.5, 10, 19.9]),
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from(["drain", "drain", "wait", ""]),
    ),
    min_size=1,
    max_size=12,
)


class Separate(Window):
    """The records of a window, by their numbers."""

    numbers: list[int] | None = None


class Texts(Separate):
    """The same for sessions, and for windows that share panes."""

    def merge(self, later: Texts) -> None:
        """Add a later session."""
        self.numbers = [*(self.numbers or []), *(later.numbers or [])]


def program(kind: Any, class_: type[Window]) -> StatefulFunctions:
    """Return a function that passes records on, and one that collects them in windows."""
    functions = StatefulFunctions()

    @functions.bind("com.example/relay")
    def relay(ctx: Context, text: str) -> None:
        number, hops, key = json.loads(text)
        if hops:
            target = Address("com.example/relay", f"{key} {number} {hops}")
            ctx.send(target, json.dumps([number, hops - 1, key]))
        else:
            ctx.send(Address("com.example/collect", key), number)

    def add(ctx: WindowContext, number: int, window: Separate) -> None:
        window.numbers = [*(window.numbers or []), number]

    add.__annotations__["window"] = class_
    collect = windowed("com.example/collect", kind, functions=functions)(add)

    def publish(ctx: WindowContext, topic: str, value: Any) -> None:
        start, end = ((each - START).total_seconds() for each in ctx.window)
        text = json.dumps([ctx.address.id, start, end, value])
        ctx.send(KafkaEgressMessage("com.example/out", topic=topic, value=text))

    @collect.on_close
    def close(ctx: WindowContext, window: Separate) -> None:
        assert ctx.watermark is not None
        assert ctx.watermark >= ctx.window.end + kind.grace
        publish(ctx, "closed", sorted(window.numbers or []))

    @collect.on_late
    def late(ctx: WindowContext, number: int) -> None:
        publish(ctx, "late", number)

    return functions


def run(
    kind: Any, steps: list[Step], seed: int, *, is_late_allowed: bool, class_: type[Window] = Texts
) -> tuple[list[float], list[Any], list[Any]]:
    """Run a program; return the times of its records, the closed windows, and the late records."""
    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=["com.example/relay"], valueFormat={"type": "text"})
        .with_event_time(
            out_of_order=DISORDER,
            max_future=timedelta(days=9),
            idle=timedelta(seconds=50),
            when_all_idle="follow",
        )
        .build()
    )
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_exactly_once_producer_semantics(MINUTE)
        .build()
    )
    chance = random.Random(seed)
    app = InProcessApplication.of(
        loaded(None, None, program(kind, class_), [ingress, egress]),
        seed,
        crashes=lambda _: chance.random() < 0.2,
    )
    times, now = [], 0.0
    for number, step in enumerate(steps):
        now += step.seconds
        times.append(round(now - step.behind * (5 if is_late_allowed else 1), 1))
        app.produce(
            "in",
            f"{step.key} {number}",
            json.dumps([number, step.hops, step.key]),
            timestamp=START + timedelta(seconds=times[-1]),
            partition=step.partition,
        )
        if step.then:
            app.drain()
        if step.then == "wait" and is_late_allowed:
            app.advance(seconds=60)
            app.drain()
    app.drain()
    app.advance(minutes=10)
    app.drain()
    assert app.addresses() == set()
    closed, late = ([each.json() for each in app.egress(topic)] for topic in ("closed", "late"))
    return times, closed, late


def model(kind: Any, records: list[tuple[str, int, float]]) -> list[Any]:
    """Return the windows of records: all of them, sorted."""
    windows: defaultdict[tuple[str, float, float], list[int]] = defaultdict(list)
    if isinstance(kind, Session):
        gap = kind.gap.total_seconds()
        by_key = sorted(records, key=lambda each: (each[0], each[2]))
        for key, group in itertools.groupby(by_key, key=lambda each: each[0]):
            session: list[tuple[str, int, float]] = []
            for each in group:
                if session and each[2] - session[-1][2] >= gap - 1e-9:
                    windows[_session(key, session, gap)] = [number for _, number, _ in session]
                    session = []
                session.append(each)
            windows[_session(key, session, gap)] = [number for _, number, _ in session]
    elif isinstance(kind, Sliding):
        windows.update(_sliding(kind.size.total_seconds(), records))
    else:
        size = kind.size.total_seconds()
        every = kind.every.total_seconds() if isinstance(kind, Hopping) else size
        offset = (START.timestamp() - kind.offset.total_seconds()) % every
        for key, number, time in records:
            start = -offset
            while start > time:
                start -= every
            while start + every <= time + 1e-9:
                start += every
            while start + size > time + 1e-9:
                windows[key, round(start, 3) + 0.0, round(start + size, 3)].append(number)
                start -= every
    return sorted([key, start, end, sorted(each)] for (key, start, end), each in windows.items())


def _sliding(
    size: float, records: list[tuple[str, int, float]]
) -> Iterator[tuple[tuple[str, float, float], list[int]]]:
    for key, _, end in records:
        start = round(end + 0.001 - size, 3)
        numbers = [number for each, number, time in records if each == key and start <= time <= end]
        yield (key, start, round(end + 0.001, 3)), numbers


def _session(
    key: str, session: list[tuple[str, int, float]], gap: float
) -> tuple[str, float, float]:
    return key, session[0][2], round(session[-1][2] + gap, 3)


@given(kind=st.sampled_from(KINDS), steps=steps, seed=st.integers(0, 1000))
def test_results_are_those_of_the_model(kind: Any, steps: list[Step], seed: int) -> None:
    """If the disorder is within ``outOfOrder``, no record is late, and each window closes once with all of its records."""
    times, closed, late = run(kind, steps, seed, is_late_allowed=False)

    records = [(step.key, number, times[number]) for number, step in enumerate(steps)]
    assert late == []
    assert sorted(closed) == model(kind, records)


@given(
    kind=st.sampled_from([each for each in KINDS if isinstance(each, Hopping)]),
    steps=steps,
    seed=st.integers(0, 1000),
)
def test_windows_with_and_without_panes_are_equal(kind: Any, steps: list[Step], seed: int) -> None:
    """Hopping windows whose class can merge have the results of others, also with crashes.

    The watermark that a record meets depends on the number of wake-ups, so which ones are late may differ.
    """
    with_panes = run(kind, steps, seed, is_late_allowed=False)
    without = run(kind, steps, seed, is_late_allowed=False, class_=Separate)

    assert [sorted(map(json.dumps, each)) for each in with_panes] == [
        sorted(map(json.dumps, each)) for each in without
    ]


@given(
    kind=st.sampled_from(KINDS),
    class_=st.sampled_from([Texts, Separate]),
    steps=steps,
    seed=st.integers(0, 1000),
)
def test_no_record_is_lost_or_counted_twice(
    kind: Any, class_: type[Window], steps: list[Step], seed: int
) -> None:
    """Each record is counted or late in each of its windows, and the same run again has the same results."""
    if not isinstance(kind, Hopping):
        class_ = Texts
    times, closed, late = run(kind, steps, seed, is_late_allowed=True, class_=class_)

    again = run(kind, steps, seed, is_late_allowed=True, class_=class_)
    assert (times, closed, late) == again
    if isinstance(kind, Session):
        counted = Counter(number for *_, numbers in closed for number in numbers)
        assert counted + Counter(number for *_, number in late) == Counter(range(len(steps)))
        return
    if isinstance(kind, Sliding):  # a late record is in no window
        lost = {number for *_, number in late}
        records = [(step.key, number, times[number]) for number, step in enumerate(steps)]
        assert sorted(closed) == model(kind, [each for each in records if each[1] not in lost])
        return
    windows = [tuple(each[:3]) for each in closed]
    assert len(windows) == len(set(windows))
    all_windows = [
        (*window, number)
        for *window, numbers in model(
            kind, [(step.key, number, times[number]) for number, step in enumerate(steps)]
        )
        for number in numbers
    ]
    found = [(*window, number) for *window, numbers in closed for number in numbers]
    assert sorted([*found, *map(tuple, late)]) == sorted(all_windows)
