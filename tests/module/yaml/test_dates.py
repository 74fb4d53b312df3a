# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.module.yaml.dates import parse_date

UTC = timezone.utc
QUARTER_PAST_FOUR = datetime(2020, 2, 1, 4, 15, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    "text",
    [
        "2020-02-01 04:15:00.00 Z",
        "2020-02-01 04:15:00.000 +0000",
        "2020-02-01 05:15:00.000 +0100",
        "2020-02-01 05:15:00.000 +01:00",
        "2020-02-01 03:15:00.000 -01",
        "2020-02-01T04:15:00Z",
        "2020-02-01T04:15Z",
        "2020-02-01t04:15:00.000000000z",
        " 2020-02-01T05:15:00+01:00 ",
        "1580530500000",
    ],
)
def test_reads_every_documented_form(text: str) -> None:
    """Forms of the documents and the code of Stateful Functions, ISO 8601, and milliseconds."""
    date = parse_date(text)

    assert date == QUARTER_PAST_FOUR
    assert date.tzinfo is not None


@given(date=st.datetimes(timezones=ZONES))
def test_reads_dates_in_iso_format(date: datetime) -> None:
    """Reading is the inverse of isoformat."""
    parsed = parse_date(date.isoformat())

    assert parsed == date
    assert parsed.utcoffset() == date.utcoffset()


@given(date=st.datetimes(min_value=datetime(1000, 1, 1), timezones=ZONES))  # noqa: DTZ001 - a bound
def test_reads_dates_in_the_pattern_of_stateful_functions(date: datetime) -> None:
    """Reading is the inverse of writing with the Java pattern, to the millisecond."""
    date = date.replace(microsecond=date.microsecond // 1000 * 1000)
    text = f"{date:%Y-%m-%d %H:%M:%S}.{date.microsecond // 1000:03d} {date:%z}"

    assert parse_date(text) == date


@given(millis=st.integers(0, 10**14))
def test_reads_epoch_milliseconds(millis: int) -> None:
    """A whole number counts milliseconds since the epoch."""
    date = parse_date(str(millis))

    assert (date - EPOCH) / timedelta(milliseconds=1) == millis


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", "is not a date; write a date such as"),
        ("2020-02-01", "is not a date; write a date such as"),
        ("2020-02-01 04:15:00", "has no time zone; write a date such as"),
        ("2020-02-30 04:15:00 Z", "is not a valid calendar date; write a date such as"),
        ("2020-02-01 24:15:00 Z", "is not a valid calendar date; write a date such as"),
        ("2020-02-01 04:15:00 +99:00", "is not a valid calendar date; write a date such as"),
        ("999999999999999", "is not a valid calendar date; write a date such as"),
    ],
)
def test_refuses_other_texts(text: str, message: str) -> None:
    """The error lists the accepted forms."""
    with pytest.raises(ValueError, match="Z") as raised:
        parse_date(text)

    assert str(raised.value) == (
        f"{message} '2020-02-01 04:15:00.00 Z', '2020-02-01T04:15:00+01:00' or epoch milliseconds"
    )


@given(text=st.text() | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]* ?[Z+-]?[0-9]*\Z"))
def test_raises_only_value_errors(text: str) -> None:
    """Any text is a date with a time zone, or a ValueError."""
    try:
        date = parse_date(text)
    except ValueError:
        return

    assert date.tzinfo is not None
