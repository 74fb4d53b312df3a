# SPDX-License-Identifier: Apache-2.0
"""Parses durations of module files: ``123ms``, ``1 min``, ``15min``, ``1 minute``."""

from __future__ import annotations

import re
from datetime import timedelta

_NANOSECONDS_PER_UNIT: dict[str, int] = {
    label: nanoseconds
    for nanoseconds, labels in (
        (86_400_000_000_000, "d day days"),
        (3_600_000_000_000, "h hour hours"),
        (60_000_000_000, "min m minute minutes"),
        (1_000_000_000, "s sec secs second seconds"),
        (1_000_000, "ms milli millis millisecond milliseconds"),
        # The micro sign and the Greek letter look alike; keyboards produce either.
        (
            1_000,
            "us \N{MICRO SIGN}s \N{GREEK SMALL LETTER MU}s micro micros microsecond microseconds",
        ),
        (1, "ns nano nanos nanosecond nanoseconds"),
    )
    for label in labels.split()
}
# A unit does not start with a digit, so that the expression cannot split a number in many ways.
_DURATION = re.compile(r"(?P<number>[0-9]+)\s*(?P<unit>(?:[^\s0-9]\S*)?)")
# The longest timedelta has 24 digits of nanoseconds; this also bounds the cost of int().
_MAX_DIGITS = 24
_TOO_LONG = "is too long for a duration"


def parse_duration(text: str) -> timedelta:
    """Parse a duration: a whole number with a unit; a number without a unit is in milliseconds.

    Fractions of a microsecond are rounded up, so that no positive duration becomes zero.

    >>> parse_duration("15min")
    datetime.timedelta(seconds=900)
    >>> parse_duration("100000")
    datetime.timedelta(seconds=100)

    Raises:
        ValueError: if ``text`` is not a duration. The error text continues a sentence whose
            subject is the duration, and does not repeat ``text``, which may be a misplaced secret.
    """
    match = _DURATION.fullmatch(text.strip())
    unit = match and _NANOSECONDS_PER_UNIT.get(match["unit"].lower() or "ms")
    if match is None or unit is None:
        raise ValueError(
            "is not a duration; write a whole number and a unit (d, h, min, s, ms, us or ns), "
            "such as '15min'; without a unit it is milliseconds"
        )
    number = match["number"].lstrip("0") or "0"
    if len(number) > _MAX_DIGITS:
        raise ValueError(_TOO_LONG)
    try:
        return timedelta(microseconds=-(-int(number) * unit // 1_000))
    except OverflowError:
        raise ValueError(_TOO_LONG) from None
