# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.event_fields import EARLIEST_TIME, LATEST_TIME, checked_timestamp, time_in_json
from statefun.sdk.times import from_epoch_millis, to_epoch_millis


@pytest.mark.parametrize(
    "time",
    ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", -62_135_596_800, 10**17, True, None, "x"],
)
def test_what_is_no_time_of_usual_years_is_refused(time: object) -> None:
    """The dates of the first and the last year are those with which languages fill empty fields."""
    with pytest.raises(ValueError, match="the field at of the record's value is no time"):
        time_in_json(json.dumps({"at": time}).encode(), ["at"])


@pytest.mark.parametrize("millis", [EARLIEST_TIME - 1, LATEST_TIME + 1, 1_764_000_000_000_000])
def test_timestamps_in_other_units_are_refused(millis: int) -> None:
    """Microseconds would be a time after the last year that Python knows."""
    with pytest.raises(ValueError, match=f"no time in milliseconds: {millis}"):
        checked_timestamp(millis)


@given(st.integers(EARLIEST_TIME, LATEST_TIME))
def test_every_event_time_is_a_date(millis: int) -> None:
    """A field with the date gives the same time."""
    date = from_epoch_millis(millis)

    assert checked_timestamp(millis) == millis
    assert time_in_json(json.dumps({"at": date.isoformat()}).encode(), ["at"]) == to_epoch_millis(
        date
    )
