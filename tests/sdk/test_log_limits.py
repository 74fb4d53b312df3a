# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.log_limits import LogLimit

INTERVAL = timedelta(seconds=10)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 15))))
def test_each_line_passes_or_is_counted_by_the_next_one(lines: list[tuple[str, int]]) -> None:
    """The first line of a kind passes, later ones once an interval; each that is left out is counted once."""
    now = 0.0
    limit = LogLimit(INTERVAL, lambda: now)
    passed: dict[str, list[float]] = {"a": [], "b": []}
    counted = {"a": 0, "b": 0}
    for kind, pause in [*lines, ("a", 10), ("b", 10)]:
        now += pause
        left_out = limit.passed(kind)
        is_due = not passed[kind] or now - passed[kind][-1] >= INTERVAL.total_seconds()
        assert (left_out is not None) == is_due
        if left_out is not None:
            passed[kind].append(now)
            counted[kind] += left_out

    for kind in "ab":
        logged = 1 + [each for each, _ in lines].count(kind)
        assert len(passed[kind]) + counted[kind] == logged
