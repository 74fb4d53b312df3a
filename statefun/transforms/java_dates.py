# SPDX-License-Identifier: Apache-2.0
"""Parses and formats dates by patterns of ``java.text.SimpleDateFormat``, in UTC and English.

Parsing is lenient, as in Java: numbers out of range carry over (a 13th month is the next January),
and text after the end of the pattern is ignored. Letters for weeks, eras and other calendars are
not supported.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import attrs

from statefun.sdk.times import EPOCH, from_epoch_millis, to_epoch_millis

_PART = re.compile(
    r"(?P<quoted>'(?:[^']|'')*')|(?P<open>')|(?P<letter>[A-Za-z])(?P=letter)*|(?P<text>[^A-Za-z']+)"
)
_MONTHS = tuple(calendar.month_name)[1:]
_DAYS = tuple(calendar.day_name)
_SHORT = 3
_NOON = 12
_ZONE = re.compile(r"(?:(?:GMT|UTC|UT|Z)(?![A-Za-z0-9+-])|(?:GMT)?([+-])(\d\d?):?(\d\d))")
_ISO_ZONES = {
    1: re.compile(r"Z|([+-])(\d\d)()"),
    2: re.compile(r"Z|([+-])(\d\d)(\d\d)"),
    3: re.compile(r"Z|([+-])(\d\d):(\d\d)"),
}
_ZONE_LETTERS = "zZX"


class _Part(NamedTuple):
    """A part of a date pattern: a letter and how often it is repeated, or a literal text."""

    letter: str
    """The letter of the part; empty for a literal text."""
    length: int
    text: str = ""


def _hours(base: int, first: int) -> Callable[[datetime], int]:
    """Return a function that computes the hour on a clock with ``base`` hours, counted from ``first``."""
    return lambda moment: (moment.hour - first) % base + first


_NUMBERS: Mapping[str, Callable[[datetime], int]] = {
    "y": lambda moment: moment.year,
    "M": lambda moment: moment.month,
    "d": lambda moment: moment.day,
    "D": lambda moment: moment.timetuple().tm_yday,
    "u": lambda moment: moment.isoweekday(),
    "H": _hours(24, 0),
    "k": _hours(24, 1),
    "K": _hours(12, 0),
    "h": _hours(12, 1),
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "S": lambda moment: moment.microsecond // 1000,
}
LETTERS = "".join((*_NUMBERS, "E", "a", _ZONE_LETTERS))
"""The letters that a date pattern may contain."""


@attrs.frozen
class DateFormat:
    """Formats and parses dates by a pattern of ``java.text.SimpleDateFormat``.

    >>> day = DateFormat("yyyy-MM-dd")
    >>> day.format(day.parse("2026-02-29"))
    '2026-03-01'
    """

    pattern: str = attrs.field()
    _parts: Sequence[_Part] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_parts", tuple(_parts_of(self.pattern)))

    def format(self, millis: int) -> str:
        """Convert a time in milliseconds since the epoch to a text.

        Raises:
            ValueError: if the year is not from 1 to 9999.
        """
        try:
            moment = from_epoch_millis(millis)
        except OverflowError:
            raise ValueError("the year must be from 1 to 9999") from None
        return "".join(_formatted(part, moment) for part in self._parts)

    def parse(self, text: str) -> int:
        """Parse a text by the pattern; return the time in milliseconds since the epoch.

        Raises:
            ValueError: if the text does not match the pattern.
        """
        fields: dict[str, int] = {}
        place = 0
        for number, part in enumerate(self._parts):
            if not part.letter:
                if not text.startswith(part.text, place):
                    raise ValueError(f"the value does not match the pattern {self.pattern}")
                place += len(part.text)
                continue
            place = len(text) - len(text[place:].lstrip(" \t"))
            before_number = number + 1 < len(self._parts) and _is_numeric(self._parts[number + 1])
            match = _part_regex(part, before_number=before_number).match(text, place)
            if match is None:
                raise ValueError(f"the value does not match the pattern {self.pattern}")
            fields[part.letter] = _value(part, match)
            place = match.end()
        return _millis(fields)


def _parts_of(pattern: str) -> Iterator[_Part]:
    for match in _PART.finditer(pattern):
        if match["open"]:
            raise ValueError("is not a pattern of dates: an opening quote has no closing quote")
        if match["quoted"]:
            # Two quotes stand for one quote, inside and outside of a quoted text.
            yield _Part("", 0, match["quoted"][1:-1].replace("''", "'") or "'")
        elif match["text"]:
            yield _Part("", 0, match["text"])
        elif match["letter"] not in LETTERS:
            raise ValueError(
                f"is not a supported pattern of dates: {match['letter']} is not one of the letters "
                f"{LETTERS}; write literal texts in single quotes"
            )
        else:
            yield _Part(match["letter"], len(match[0]))


def _is_numeric(part: _Part) -> bool:
    return part.letter in _NUMBERS and not (part.letter == "M" and part.length >= _SHORT)


def _formatted(part: _Part, moment: datetime) -> str:
    letter, length, text = part
    if letter in _NUMBERS and _is_numeric(part):
        if letter == "y" and length == 2:  # noqa: PLR2004 - two letters are two digits
            return f"{moment.year % 100:02}"
        return str(_NUMBERS[letter](moment)).zfill(length)
    write = _TEXTS.get(letter)
    return text if write is None else write(moment, length)


_TEXTS: Mapping[str, Callable[[datetime, int], str]] = {
    "M": lambda moment, length: _name(_MONTHS[moment.month - 1], length),
    "E": lambda moment, length: _name(_DAYS[moment.weekday()], length),
    "a": lambda moment, _: "AM" if moment.hour < _NOON else "PM",
    "z": lambda _, length: "UTC" if length <= _SHORT else "Coordinated Universal Time",
    "Z": lambda _moment, _length: "+0000",
    "X": lambda _moment, _length: "Z",
}


def _name(name: str, length: int) -> str:
    return name[:_SHORT] if length <= _SHORT else name


def _part_regex(part: _Part, *, before_number: bool) -> re.Pattern[str]:
    """Return the regular expression that matches one part of a date pattern.

    A number must have exactly ``part.length`` digits if another number follows without a separator.
    """
    letter, length, _ = part
    if letter in _ZONE_LETTERS:
        return _ISO_ZONES[min(length, 3)] if letter == "X" else _ZONE
    if _is_numeric(part):
        return re.compile(rf"\d{{{length}}}" if before_number else r"\d+", re.ASCII)
    names = {"a": ("AM", "PM"), "M": _MONTHS, "E": _DAYS}[letter]
    both = "|".join(f"{name}|{name[:_SHORT]}" for name in names)
    return re.compile(f"(?:{both})", re.IGNORECASE)


def _value(part: _Part, match: re.Match[str]) -> int:
    letter, length, _ = part
    text = match[0]
    if letter in _ZONE_LETTERS:
        if match[1] is None:
            return 0
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        return -minutes if match[1] == "-" else minutes
    if not _is_numeric(part):
        names = {"a": ("AM", "PM"), "M": _MONTHS, "E": _DAYS}[letter]
        short = [name[:_SHORT].upper() for name in names]
        return short.index(text[:_SHORT].upper()) + (letter == "M")
    number = int(text)
    if letter == "y" and length <= 2 and len(text) == 2:  # noqa: PLR2004 - two digits
        # Java takes the year that is between 80 years ago and 20 years from now.
        first = datetime.now(tz=timezone.utc).year - 80
        return first + (number - first) % 100
    return number


def _millis(fields: Mapping[str, int]) -> int:
    """Return the time that the fields of a parsed date give, in milliseconds since the epoch.

    Numbers that are too large carry over: month 13 is January of the next year.

    Args:
        fields: the parsed numbers, by the letters of the date pattern.
    """
    months = fields.get("M", 1) - 1
    year = fields.get("y", EPOCH.year) + months // 12
    zone = next((fields[letter] for letter in _ZONE_LETTERS if letter in fields), 0)
    try:
        moment = datetime(year, months % 12 + 1, 1, tzinfo=timezone.utc)
        if "D" in fields:
            moment = moment.replace(month=1)
        moment += timedelta(
            days=fields.get("D", fields.get("d", 1)) - 1,
            hours=_hour(fields),
            minutes=fields.get("m", 0) - zone,
            seconds=fields.get("s", 0),
            milliseconds=fields.get("S", 0),
        )
    except (ValueError, OverflowError):
        raise ValueError("the value is out of range: the year must be from 1 to 9999") from None
    return to_epoch_millis(moment)


def _hour(fields: Mapping[str, int]) -> int:
    if "K" in fields or "h" in fields:
        hour = fields["K"] if "K" in fields else _from_zero(fields["h"], _NOON)
        return hour + _NOON * fields.get("a", 0)
    return fields["H"] if "H" in fields else _from_zero(fields.get("k", 0), 2 * _NOON)


def _from_zero(hour: int, midnight: int) -> int:
    return 0 if hour == midnight else hour
