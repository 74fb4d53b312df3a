# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.times import (
    EPOCH,
    from_epoch_millis,
    in_milliseconds,
    nearest_date,
    to_epoch_millis,
)

FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The milliseconds of the first and of the last date."""


@given(st.integers(FIRST, LAST))
def test_milliseconds_of_a_date_are_those_that_made_it(millis: int) -> None:
    """Nothing is lost, however far a date is from the epoch."""
    assert to_epoch_millis(from_epoch_millis(millis)) == millis


@pytest.mark.parametrize("millis", [FIRST - 1, LAST + 1, 2**63 - 1])
def test_milliseconds_outside_the_calendar_have_no_date(millis: int) -> None:
    """Such as those of a producer that writes nanoseconds."""
    with pytest.raises(OverflowError):
        from_epoch_millis(millis)


@pytest.mark.parametrize("millis", [0, LAST, LAST + 1, 2**63 - 1, 2**63])
def test_the_nearest_date_of_a_time_after_the_calendar_is_its_last_one(millis: int) -> None:
    """All other times have a date."""
    assert to_epoch_millis(nearest_date(millis)) == min(millis, LAST)


def test_dates_of_other_time_zones_are_the_same_moment() -> None:
    """The zone of a date does not count."""
    zone = timezone(timedelta(hours=5, minutes=30))

    assert to_epoch_millis(datetime(1970, 1, 1, 5, 30, tzinfo=zone)) == 0


def test_dates_are_rounded_down_and_durations_up() -> None:
    """Also before the epoch."""
    half = timedelta(microseconds=500)

    assert [to_epoch_millis(EPOCH + half), to_epoch_millis(EPOCH - half)] == [0, -1]
    assert [in_milliseconds(half), in_milliseconds(-half)] == [1, 0]
