# SPDX-License-Identifier: Apache-2.0
"""Early results at intervals of event time, against a model in plain Python."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import (
    DefinitionError,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    StatefulFunctions,
)
from statefun.testing import InProcessApplication
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

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
EVERY = 4
"""The seconds between two early results."""


class Numbers(Window):
    """The numbers of a window."""

    numbers: list[int] | None = None


class Mergeable(Numbers):
    """The same, with panes if windows overlap."""

    def merge(self, later: Mergeable) -> None:
        """Add later numbers."""
        self.numbers = [*(self.numbers or []), *(later.numbers or [])]


def run(kind: Any, class_: type[Window], times: list[tuple[str, int]], seed: int) -> list[Any]:
    """Handle records one after another; return all early results and results of closed windows, in order."""
    functions = StatefulFunctions()

    def collect(ctx: WindowContext, number: str, window: Numbers) -> None:
        window.numbers = [*(window.numbers or []), int(number)]

    collect.__annotations__["window"] = class_
    add = windowed("com.example/collect", kind, functions=functions)(collect)

    def publish(ctx: WindowContext, what: str, window: Any) -> None:
        start, end = ((each - START).total_seconds() for each in ctx.window)
        assert ctx.event_time is not None
        now = (ctx.event_time - START).total_seconds()
        text = json.dumps([what, now, ctx.address.id, start, end, sorted(window.numbers)])
        ctx.send(KafkaEgressMessage("com.example/out", topic="out", value=text))

    @add.on_update(every=timedelta(seconds=EVERY))
    def show(ctx: WindowContext, window: Window) -> None:
        publish(ctx, "early", window)

    @add.on_close
    def close(ctx: WindowContext, window: Window) -> None:
        publish(ctx, "closed", window)

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=["com.example/collect"], valueFormat={"type": "text"})
        .with_event_time(out_of_order=timedelta(0), max_future=timedelta(days=9))
        .build()
    )
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_exactly_once_producer_semantics(timedelta(minutes=1))
        .build()
    )
    chance = random.Random(seed)
    app = InProcessApplication.of(
        loaded(None, None, functions, [ingress, egress]),
        seed,
        crashes=lambda _: chance.random() < 0.2,
    )
    for number, (key, time) in enumerate(times):
        app.produce("in", key, str(number), timestamp=START + timedelta(seconds=time))
        app.drain()
    return [record.json() for record in app.egress("out")]


def windows_of(kind: Any, time: int, opened: dict[tuple[int, int], Any]) -> list[tuple[int, int]]:
    """Return the start and end of the windows of a record, in seconds; a session is that of its newest record."""
    if isinstance(kind, Session):
        gap = round(kind.gap.total_seconds())
        own = [each for each in opened if time < each[1]]
        return [(own[0][0], time + gap)] if own else [(time, time + gap)]
    size = round(kind.size.total_seconds())
    every = round(kind.every.total_seconds()) if isinstance(kind, Hopping) else size
    return [
        (start, start + size) for start in range(time - size + 1, time + 1) if start % every == 0
    ]


class Model:
    """What the function does with the records of a key."""

    def __init__(self, kind: Any) -> None:
        self.results: list[Any] = []
        self._kind = kind
        self._opened: dict[tuple[int, int], list[int]] = {}
        self._waiting: dict[tuple[int, int], int] = {}
        """The changed windows, and when they are shown at the latest."""

    def add(self, number: int, time: int, watermark: int) -> None:
        """Handle a record."""
        for window in windows_of(self._kind, time, self._opened):
            if isinstance(self._kind, Session):
                for former in [each for each in self._opened if time < each[1]]:
                    self._opened[window] = self._opened.pop(former)
                    if former in self._waiting:
                        self._waiting[window] = self._waiting.pop(former)
            self._opened.setdefault(window, []).append(number)
            self._waiting.setdefault(window, (max(time, watermark) // EVERY + 1) * EVERY)

    def advance(self, now: int) -> None:
        """Show and close the windows that are due."""
        if min(self._waiting.values(), default=now + 1) <= now:
            for start, end in _by_end(self._waiting):
                if end > now:
                    self.results.append(["early", now, start, end, [*self._opened[start, end]]])
            self._waiting.clear()
        for window in _by_end(self._opened):
            if window[1] <= now:
                self._waiting.pop(window, None)
                self.results.append(["closed", now, *window, self._opened.pop(window)])


def _by_end(windows: Any) -> list[tuple[int, int]]:
    return sorted(windows, key=lambda window: window[::-1])


def model(kind: Any, times: list[tuple[str, int]]) -> dict[str, list[Any]]:
    """Return what :func:`run` returns, by key."""
    keys = {key: Model(kind) for key in "ab"}
    watermark = -1
    for number, (key, time) in enumerate(times):
        keys[key].add(number, time, watermark)
        for now in range(watermark + 1, time + 1):
            for each in keys.values():
                each.advance(now)
        watermark = max(watermark, time)
    return {key: each.results for key, each in keys.items()}


@given(
    kind=st.sampled_from(
        [
            (Tumbling(timedelta(seconds=10)), Numbers),
            (Hopping(timedelta(seconds=15), every=timedelta(seconds=6)), Numbers),
            (Hopping(timedelta(seconds=15), every=timedelta(seconds=6)), Mergeable),
            (Session(timedelta(seconds=7)), Mergeable),
        ]
    ),
    steps=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8)), max_size=15),
    seed=st.integers(0, 1000),
)
def test_early_results_are_those_of_the_model(
    kind: tuple[Any, type[Window]], steps: list[tuple[str, int]], seed: int
) -> None:
    """All windows that have changed are shown at full intervals, once, with what they have then, also after crashes."""
    times, now = [], 0
    for key, seconds in steps:
        now += seconds
        times.append((key, now))

    results = run(*kind, times, seed)

    for key, expected in model(kind[0], times).items():
        own = [[what, now, *rest] for what, now, id_, *rest in results if id_ == key]
        assert own == expected


def test_an_early_result_after_a_failed_one() -> None:
    """A handler that has failed once does not end the early results of a window."""
    functions = StatefulFunctions()
    shown = []

    @windowed(
        "com.example/collect",
        Tumbling(timedelta(minutes=1)),
        on_failure="skip",
        functions=functions,
    )
    def collect(ctx: WindowContext, number: str, window: Numbers) -> None:
        window.numbers = [*(window.numbers or []), int(number)]

    @collect.on_update(every=timedelta(seconds=10))
    def show(ctx: WindowContext, window: Numbers) -> None:
        shown.append(window.numbers)
        if len(shown) == 1:
            raise ValueError("broken")

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=["com.example/collect"], valueFormat={"type": "text"})
        .with_event_time(out_of_order=timedelta(0), max_future=timedelta(days=9))
        .build()
    )
    app = InProcessApplication(functions=functions, components=[ingress])
    for number, seconds in enumerate([1, 12, 14, 25]):
        app.produce("in", "a", str(number), timestamp=START + timedelta(seconds=seconds))
        app.drain()

    assert shown == [[0, 1], [0, 1, 2, 3]]


def in_vain(ctx: WindowContext, window: Mergeable) -> None:
    """Show nothing."""


@pytest.mark.parametrize(
    ("kind", "every", "text"),
    [
        (
            Tumbling(timedelta(minutes=1)),
            timedelta(0),
            "interval of early results must be a positive timedelta",
        ),
        (
            Counted(3),
            timedelta(1),
            "counted windows give no early results at intervals; leave out the argument 'every', or use windows of time",
        ),
        (Sliding(timedelta(1)), 5, "interval of early results must be a positive timedelta"),
    ],
)
def test_ill_formed_intervals_are_refused(kind: Any, every: Any, text: str) -> None:
    """The error names the handler."""

    @windowed("com.example/collect", kind, functions=StatefulFunctions())
    def collect(ctx: WindowContext, number: str, window: Mergeable) -> None:
        """Count nothing."""

    with pytest.raises(DefinitionError, match=rf"in_vain \(.*{text}"):
        collect.on_update(every=every)(in_vain)
