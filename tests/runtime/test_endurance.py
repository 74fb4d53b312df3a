# SPDX-License-Identifier: Apache-2.0
"""``make endurance`` in short: everything is in use, and is sampled and judged."""

from __future__ import annotations

import random
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from endurance.census import census, changed, write_census
from endurance.parts import drive
from endurance.running import endure
from endurance.verdict import Series, series_of, verdict
from hypothesis import given
from hypothesis import strategies as st
from kinesis_server import KINESALITE

BATCHES = range(0, 100_000, 250)
_LATE = 3


@pytest.mark.long(minutes=1.1)
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.skipif(bool(KINESALITE.missing_tools), reason="there is no Node.js")
def test_an_application_in_which_everything_is_in_use(tmp_path: Path) -> None:
    """It runs through outages of its endpoint; its driver, JVM, workers and files are sampled."""
    folder = tmp_path / "run"

    used = endure(folder, 60, timedelta(seconds=3), absence=timedelta(seconds=6))

    assert used.missing == []
    found = {series.name: series for series in series_of(folder)}
    assert {
        "driver blocks",
        "driver allocated",
        "jvm heap",
        "worker blocks",
        "state addresses",
        "checkpoint/timers files",
    } <= found.keys()
    assert changed(folder, 0)
    for name in ("driver descriptors", "driver threads", "worker descriptors", "worker threads"):
        values = found[name].values
        half = len(values) // 2
        # A worker may open its first connections late; a leak adds one in each micro-batch.
        assert min(values[half:]) <= max(values[:half]) + _LATE, name


@pytest.mark.long(minutes=1.2)
def test_the_parts_of_the_driver_stay_flat() -> None:
    """In a few hundred micro-batches, an object that each of them leaves behind shows already."""
    found = {each.series.name: each for each in drive(800)}

    for name in ("driver blocks", "driver threads", "driver descriptors", "state addresses"):
        assert found[name].slope - found[name].error < 0.5, name


def judged(values: Sequence[float], limit: float = 1e-3) -> str:
    """Return what is known of a figure."""
    found = verdict(Series("some", limit, BATCHES, values))
    assert found is not None
    return found.word


@given(st.lists(st.floats(0, 1e6), min_size=len(BATCHES), max_size=len(BATCHES)))
def test_a_figure_that_comes_down_again_does_not_grow(values: list[float]) -> None:
    """However much it takes meanwhile: what counts is the least of each window."""
    sawtooth = [value * (place % 7 != 0) for place, value in enumerate(values)]

    assert judged(sawtooth) == "flat"


@given(st.lists(st.floats(0, 100), min_size=len(BATCHES), max_size=len(BATCHES)))
def test_a_leak_shows_below_what_comes_and_goes(values: list[float]) -> None:
    """One object in each hundredth micro-batch."""
    leaking = [
        batch / 100 + value * (place % 7 != 0)
        for place, (batch, value) in enumerate(zip(BATCHES, values, strict=True))
    ]

    assert judged(leaking) == "grows"


@pytest.mark.parametrize(("leak", "word"), [(0, "flat"), (0.01, "grows")])
def test_a_figure_with_uncertain_floors_is_judged_by_its_means(leak: float, word: str) -> None:
    """Its least values differ by far more than a leak adds; what leaks raises both."""
    chance = random.Random(7)
    values = [
        leak * batch + (chance.gauss(500, 1) if place % 40 else 300 * chance.random())
        for place, batch in enumerate(BATCHES)
    ]

    assert judged(values, limit=5e-3) == word


@pytest.mark.parametrize(("leak", "word"), [(0, "flat"), (0.002, "grows")])
def test_other_work_of_the_machine_is_no_leak(leak: float, word: str) -> None:
    """What is deleted by the clock is less while micro-batches are slow, as here in the middle of the run."""
    chance, batch = random.Random(7), 0.0
    batches, values = [], []
    for place in range(400):
        pace = 150 if 200 < place < 300 else 250
        batch += pace
        batches.append(batch)
        values.append(leak * batch + 2 * pace + chance.gauss(0, 5))

    found = verdict(Series("some", 1e-3, batches, values))

    assert found is not None
    assert found.word == word


@pytest.mark.parametrize(("full", "word"), [(0.45, "flat"), (0.95, "grows")])
def test_a_cache_that_fills_is_flat_once_it_is_full(full: float, word: str) -> None:
    """If it is full before the second half; a figure that grows to the end does grow."""
    filling = [min(batch, full * BATCHES[-1]) for batch in BATCHES]

    assert judged(filling) == word


def test_the_types_of_which_there_are_more_are_listed(tmp_path: Path) -> None:
    """With their growth between the warm-up and the end."""
    kept: list[deque[int]] = []
    for batch in range(32):
        kept += [deque([each]) for each in range(1000)]
        write_census(tmp_path, batch)

    (growth, name), *_ = changed(tmp_path, 0.25)

    assert name == "collections.deque"
    assert growth == pytest.approx(21_000, rel=0.1)


def test_a_census_disturbs_no_other_thread() -> None:
    """Python cannot complete a tuple to which a list of all objects refers."""
    made, is_over = 0, threading.Event()

    def make_tuples() -> int:
        count = 0
        while not is_over.is_set():
            count += len(tuple(each for each in range(100)))
        return count

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(make_tuples)
            for _ in range(20):
                census()
            is_over.set()
            made = future.result()
    finally:
        sys.setswitchinterval(interval)
    assert made


def test_a_short_run_decides_nothing() -> None:
    """Rather than to say that a figure is flat, or that it grows."""
    few = Series("some", 1e-6, [1, 2, 3], [1, 2, 3])
    rough = [float(place * 7919 % 1000) for place in range(len(BATCHES))]

    assert verdict(few) is None
    assert judged(rough, limit=1e-6) == "undecided"
