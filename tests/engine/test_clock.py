# SPDX-License-Identifier: Apache-2.0
"""Timers under clocks that jump: nothing early, nothing lost, nothing twice, nothing for ever."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from micro_batches import DAY, SECOND, START, Engine, SetClock

from statefun.engine import buckets
from statefun.engine.clock import BatchClock, JumpLog
from statefun.engine.wheel import time_of

jumps = st.one_of(st.integers(-3 * SECOND, 3 * SECOND), st.sampled_from([-DAY, DAY, 3600 * SECOND]))
sent = st.lists(
    st.one_of(st.integers(0, 3 * SECOND), st.sampled_from([3600 * SECOND, DAY])), max_size=3
)
steps = st.lists(
    st.tuples(jumps, sent, st.sampled_from(["go on", "restart", "crash"])), min_size=1, max_size=8
)


@given(steps, st.sampled_from([0, 100, 64 * 1024]))
@example([(DAY, [0], "go on"), (-DAY, [3600 * SECOND], "restart"), (SECOND, [SECOND], "go on")], 0)
def test_timers_follow_a_clock_that_jumps(
    steps: list[tuple[int, list[int], str]], full: int
) -> None:
    """Each comes once, when the driver's clock says that it is due, whatever that said before.

    So it is when buckets are split.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "_FULL_BYTES", full)
        engine = Engine(Path(folder))
        for jump, delays, event in steps:
            engine.clock.time += jump
            if event == "restart":
                engine.restart()
            engine.settle(delays, crash=event == "crash")
            overdue = engine.clock.now() - time_of(1)
            assert {n for n, due in engine.due.items() if due <= overdue} <= {*engine.arrived}
        engine.clock.time = max([START, *engine.due.values()]) + DAY
        engine.settle([])

        assert engine.early == []
        assert sorted(engine.arrived) == list(range(len(engine.due)))
        assert engine.states == {}, "neither buckets nor expired values are left"


passed = st.sampled_from(
    [0, 1, time_of(1), time_of(1) + 1, SECOND, 3595 * SECOND, 3600 * SECOND, DAY]
)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(passed, sent, st.sampled_from(["settle", "batch", "restart"])), max_size=9),
    st.sampled_from([0, 100, 64 * 1024]),
)
@example([(0, [2 * SECOND, SECOND, 3 * SECOND, SECOND], "settle")], 64 * 1024)
@example([(0, [2 * SECOND, SECOND], "settle"), (SECOND, [SECOND], "batch")], 0)
@example([(0, 4 * [3600 * SECOND], "settle"), (3500 * SECOND, 4 * [101 * SECOND], "settle")], 0)
def test_delayed_messages_come_in_the_order_of_their_time(
    steps: list[tuple[int, list[int], str]], full: int
) -> None:
    """This holds for each target, however many messages are overdue, and in whichever buckets they waited.

    Those that are due together come in the order in which they were sent.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "_FULL_BYTES", full)
        engine = Engine(Path(folder))
        for time, delays, event in steps:
            engine.clock.time += time
            if event == "restart":
                engine.restart()
            if event == "batch":
                engine.step(delays)
            else:
                engine.settle(delays)
        engine.clock.time += 2 * DAY
        engine.settle([])

        for target in range(engine.targets):
            own = [n for n in engine.arrived if n % engine.targets == target]
            assert own == sorted(own, key=lambda number: (engine.due[number], number))
        assert len(engine.arrived) == len(engine.due)


skews = st.sampled_from([-DAY, -SECOND, 0, SECOND, 3000 * SECOND, DAY])
tokens = st.lists(st.tuples(st.integers(0, 3 * SECOND), st.sampled_from("ab")), max_size=3)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, SECOND), skews, tokens), min_size=1, max_size=8))
@example([(0, 0, [(2 * SECOND, "a")]), (0, 3000 * SECOND, [(2 * SECOND, "a")])])
def test_a_token_is_free_when_the_driver_says_so(
    steps: list[tuple[int, int, list[tuple[int, str]]]],
) -> None:
    """Whichever worker uses the token again, no message comes early, twice, or never."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Path(folder))
        for passed, skew, delays in steps:
            engine.clock.time += passed
            engine.skew = skew
            engine.settle(delays)
        engine.clock.time += 2 * DAY
        engine.settle([])

        assert engine.early == []
        assert len(engine.arrived) == len({*engine.arrived})
        assert len(engine.arrived) + engine.skipped == len(engine.due)
        assert engine.states == {}


def test_an_hour_is_an_hour_after_a_tick_that_was_a_day_ahead(tmp_path: Path) -> None:
    """No message that is sent later gets a bucket whose tick is in the past."""
    engine = Engine(tmp_path)
    engine.clock.time += DAY
    engine.settle([0])
    engine.clock.time -= DAY
    engine.settle([3600 * SECOND])
    early = list(engine.arrived)
    engine.clock.time += 3600 * SECOND
    engine.settle([])

    assert (early, engine.arrived) == ([0], [0, 1])


def test_a_storm_of_timers_rewrites_little(tmp_path: Path) -> None:
    """However many messages wait for one tick, further ones do not rewrite megabytes."""
    engine = Engine(tmp_path, targets=20_000)
    for _ in range(20):
        engine.settle([3600 * SECOND] * 1_000)

    waiting = sum(map(len, engine.states.values()))
    engine.clock.time += 3600 * SECOND
    engine.settle([])

    assert waiting > 16 * 64 * 1024
    assert engine.largest < 70 * 1024
    assert sorted(engine.arrived) == list(range(20_000))


@pytest.mark.parametrize("token", ["", "t-{}"])
def test_many_timers_of_one_sender_for_one_target_rewrite_little(
    tmp_path: Path, token: str
) -> None:
    """However many messages share a tick, with tokens or without, no state grows with their number."""
    engine = Engine(tmp_path, targets=1)
    for batch in range(10):
        numbers = range(300 * batch, 300 * (batch + 1))
        engine.settle([(3600 * SECOND, token.format(number)) for number in numbers])

    waiting = sum(map(len, engine.states.values()))
    engine.clock.time += 3600 * SECOND
    engine.settle([])

    assert waiting > 2 * 64 * 1024
    assert engine.largest < 70 * 1024
    assert engine.arrived == list(range(3_000))


@given(
    skew=st.integers(-DAY, DAY),
    passed=st.integers(0, DAY),
    jump=st.integers(-DAY, DAY),
)
def test_a_worker_goes_on_where_the_driver_was(skew: int, passed: int, jump: int) -> None:
    """The worker's own clock counts for a minute at most, and its jumps do not count."""
    own = SetClock(START + skew)
    clock = BatchClock(own, START)
    at_first = clock.now()
    own.time += passed + jump
    own.stopwatch += passed

    assert at_first == START + min(max(skew, 0), 3600 * SECOND)
    assert clock.now() == at_first + passed


def test_each_jump_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the direction and size of the jump; time that passes is no jump."""
    clock = SetClock()
    log = JumpLog(clock)

    with caplog.at_level(logging.WARNING, "statefun"):
        for jump, passed in ((0, DAY), (DAY, SECOND), (0, SECOND), (-DAY, 0), (0, 0)):
            clock.time += jump + passed
            clock.stopwatch += passed
            log.look()

    assert [message.split(" (")[0] for message in caplog.messages] == [
        "the clock has jumped ahead by 1 day, 0:00:00",
        "the clock has jumped back by 1 day, 0:00:00",
    ]
