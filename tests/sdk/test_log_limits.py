# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from datetime import timedelta
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk import log_limits
from statefun.sdk.log_limits import LogLimit

INTERVAL = timedelta(seconds=10)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 15))), st.integers(1, 3))
def test_each_line_passes_or_is_counted_by_the_next_one(
    lines: list[tuple[str, int]], most: int
) -> None:
    """So many lines of a kind pass in an interval; each that is left out is counted once."""
    now = 0.0
    limit = LogLimit(INTERVAL, most, lambda: now)
    begun: dict[str, float] = {}
    passed = {"a": 0, "b": 0}
    counted = {"a": 0, "b": 0}
    in_interval = {"a": 0, "b": 0}
    for kind, pause in [*lines, ("a", 10), ("b", 10)]:
        now += pause
        left_out = limit.passed(kind)
        if kind not in begun or now - begun[kind] >= INTERVAL.total_seconds():
            begun[kind] = now
            in_interval[kind] = 0
        assert (left_out is not None) == (in_interval[kind] < most)
        if left_out is not None:
            in_interval[kind] += 1
            passed[kind] += 1
            counted[kind] += left_out
    now += INTERVAL.total_seconds()
    assert limit.take_left_out() == []

    for kind in "ab":
        logged = 1 + [each for each, _ in lines].count(kind)
        assert passed[kind] + counted[kind] == logged


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=60))
def test_many_kinds_are_forgotten_after_their_intervals(lines: list[tuple[int, int]]) -> None:
    """However many kinds there are: lines pass as if each was known, and no line is counted twice."""
    now = 0.0
    begun: dict[int, float] = {}
    left_out: Counter[int] = Counter()
    with patch.object(log_limits, "_MOST_KINDS", 3):
        limit = LogLimit(INTERVAL, clock=lambda: now)
        for kind, pause in lines:
            now += pause
            found = limit.passed(str(kind))
            is_first = kind not in begun or now - begun[kind] >= INTERVAL.total_seconds()
            assert (found is not None) == is_first
            if found is None:
                left_out[kind] += 1
            else:
                assert found in {0, left_out.pop(kind, 0)}
                begun[kind] = now


def test_a_limit_forgets_kinds_that_log_no_more() -> None:
    """A kind may be the name of a function that somebody has invented."""
    now = 0.0
    limit = LogLimit(INTERVAL, clock=lambda: now)
    for _ in range(3):
        limit.passed("first")

    for number in range(10_000):
        now += INTERVAL.total_seconds()
        limit.passed(f"{number}")

    assert limit.passed("first") == 0
