# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import traceback
from datetime import timedelta

import pytest

from statefun import FunctionError
from statefun.formats.recent_failures import RecentFailures

HOUR = timedelta(hours=1)


def test_failures_end_with_their_periods() -> None:
    """A request whose period is over has not failed recently."""
    failures = RecentFailures()
    failures.add(1, ValueError("one"), HOUR)
    failures.add(2, ValueError("two"), timedelta(0))

    with pytest.raises(ValueError, match="one"):
        failures.check(1)
    failures.check(2)


def test_each_failure_has_an_error_of_its_own() -> None:
    """An error that is raised again and again would have a longer traceback each time."""
    failures = RecentFailures()
    failures.add(1, FunctionError("no answer"), HOUR)
    raised = []
    for _ in range(3):
        with pytest.raises(FunctionError) as found:
            failures.check(1)
        raised.append(found.value)

    assert {str(each) for each in raised} == {"[SF301] no answer"}
    assert {len(traceback.extract_tb(each.__traceback__)) for each in raised} == {2}


def test_failures_take_little_memory() -> None:
    """Malformed values can have any schema id."""
    failures = RecentFailures()
    for number in range(30_000):
        failures.add(number, ValueError("unknown"), HOUR)

    with pytest.raises(ValueError, match="unknown"):
        failures.check(29_999)
    assert len(failures._errors) <= 10_000  # noqa: SLF001 - there is no other way to see it
