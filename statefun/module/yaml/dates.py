# SPDX-License-Identifier: Apache-2.0
"""Parses dates in all forms that the documentation and code of Stateful Functions use."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from statefun.sdk.times import from_epoch_millis

_EPOCH_MILLIS = re.compile(r"[0-9]{1,15}")
_DATE = re.compile(
    r"""
    (?P<year>[0-9]{4}) - (?P<month>[0-9]{2}) - (?P<day>[0-9]{2})
    (?: [Tt] | [ ]+ )
    (?P<hour>[0-9]{2}) : (?P<minute>[0-9]{2})
    (?: : (?P<second>[0-9]{2}) (?: \. (?P<fraction>[0-9]{1,9}) )? )?
    [ ]*
    (?P<zone> [Zz] | (?P<sign>[+-]) (?P<zone_hour>[0-9]{1,2}) (?: :? (?P<zone_minute>[0-9]{2}) )? )?
    """,
    re.VERBOSE,
)
_EXPECTED = "such as '2020-02-01 04:15:00.00 Z', '2020-02-01T04:15:00+01:00' or epoch milliseconds"


def parse_date(text: str) -> datetime:
    """Parse a date with its time zone.

    The date may have the documented form ``2020-02-01 04:15:00.00 Z``, the form of the code of Stateful
    Functions, ``yyyy-MM-dd HH:mm:ss.SSS +0000``, or the form of ISO 8601; or it is a number of milliseconds since
    the epoch.

    >>> parse_date("2020-02-01 04:15:00.00 Z").isoformat()
    '2020-02-01T04:15:00+00:00'
    >>> parse_date("1580530500000").isoformat()
    '2020-02-01T04:15:00+00:00'

    Raises:
        ValueError: if ``text`` is not a date. The error text continues a sentence whose
            subject is the date, and does not repeat ``text``, which may be a misplaced secret.
    """
    text = text.strip()
    match = _DATE.fullmatch(text)
    try:
        if _EPOCH_MILLIS.fullmatch(text):
            return from_epoch_millis(int(text))
        if match is not None and match["zone"] is not None:
            return _moment(match)
    except (ValueError, OverflowError):
        raise ValueError(f"is not a valid calendar date; write a date {_EXPECTED}") from None
    if match is None:
        raise ValueError(f"is not a date; write a date {_EXPECTED}")
    raise ValueError(f"has no time zone; write a date {_EXPECTED}")


def _moment(match: re.Match[str]) -> datetime:
    return datetime(
        year=int(match["year"]),
        month=int(match["month"]),
        day=int(match["day"]),
        hour=int(match["hour"]),
        minute=int(match["minute"]),
        second=int(match["second"] or 0),
        microsecond=int((match["fraction"] or "0").ljust(6, "0")[:6]),
        tzinfo=_zone(match),
    )


def _zone(match: re.Match[str]) -> timezone:
    offset = timedelta(hours=int(match["zone_hour"] or 0), minutes=int(match["zone_minute"] or 0))
    return timezone(-offset if match["sign"] == "-" else offset)
