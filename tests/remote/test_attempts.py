# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from statefun.remote.attempts import Budget, VainAttempt, pause_after

SECOND = timedelta(seconds=1)


@given(
    attempts=st.integers(0, 100),
    seconds=st.floats(0.01, 600),
    requested=st.timedeltas(timedelta(0), timedelta(days=9)),
)
def test_a_pause_is_as_long_as_the_answer_allows(
    attempts: int, seconds: float, requested: timedelta
) -> None:
    """A busy endpoint gets its pause; another answer lets time for a next attempt, unless there were many."""
    budget = Budget(seconds, attempts=attempts)
    busy = VainAttempt("", is_answer=True, is_busy=True, pause=requested)
    longest = pause_after(VainAttempt("", is_answer=True), Budget(seconds, attempts=attempts)) * 3

    assert pause_after(busy, budget) >= requested
    pause = pause_after(VainAttempt("", is_answer=True, pause=requested), budget)
    half = min(requested, 5 * SECOND, timedelta(seconds=seconds / 2))
    assert half <= pause <= max(half, longest)
