# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

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
