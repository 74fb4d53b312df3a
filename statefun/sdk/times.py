# SPDX-License-Identifier: Apache-2.0
"""Converts dates and durations to whole milliseconds, which Kafka and the engine count, and back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from statefun.sdk.errors import DefinitionError

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, since the epoch."""


def from_epoch_millis(millis: int) -> datetime:
    """Return the date, in UTC, of a number of milliseconds since the epoch.

    >>> from_epoch_millis(1_000_000_000_250).isoformat()
    '2001-09-09T01:46:40.250000+00:00'

    Raises:
        OverflowError: if the year is not from 1 to 9999.
    """
    return EPOCH + timedelta(milliseconds=millis)


def nearest_date(millis: int) -> datetime:
    """Return the date of a number of milliseconds since the epoch; the calendar's last date for a later time.

    A value may expire long after that: Java's longest duration stands for never.

    >>> nearest_date(2**63 - 1).isoformat()
    '9999-12-31T23:59:59.999000+00:00'
    """
    return from_epoch_millis(min(millis, _LAST))


def to_epoch_millis(date: datetime) -> int:
    """Return the milliseconds from the epoch to a date with a time zone, rounded down.

    >>> to_epoch_millis(datetime(2001, 9, 9, 1, 46, 40, 250_999, tzinfo=timezone.utc))
    1000000000250
    """
    return (date - EPOCH) // _MILLISECOND


def in_milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds, rounded up, so that a wait is never too short.

    >>> in_milliseconds(timedelta(microseconds=1500))
    2
    """
    whole, rest = divmod(duration, _MILLISECOND)
    return whole + bool(rest)


def check_duration(what: str, value: object, *, may_be_zero: bool = False) -> None:
    """Check that a user's value is a positive timedelta in whole milliseconds, or zero if ``may_be_zero`` is set.

    Args:
        what: the name of the duration in errors.
        value: the user's value.
        may_be_zero: whether the duration may be zero.

    Raises:
        DefinitionError: if the value is no such timedelta.
    """
    least = timedelta(0) if may_be_zero else _MILLISECOND
    if not (isinstance(value, timedelta) and value >= least):
        kind = "a timedelta that is not negative" if may_be_zero else "a positive timedelta"
        raise DefinitionError(f"{what} must be {kind}, not {value!r}")
    if value % _MILLISECOND:
        raise DefinitionError(f"{what} must be whole milliseconds, not {value!r}")
