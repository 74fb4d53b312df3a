# SPDX-License-Identifier: Apache-2.0
"""Reads the event time of a record from a field of its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

from statefun.sdk.times import to_epoch_millis

_SECONDS_BELOW = 100_000_000_000
"""A number below this one counts seconds since the epoch: as milliseconds, it would be a time before 1973."""
LATEST_TIME = 253_370_764_800_000
"""The latest event time, in milliseconds since the epoch: the first day of the last year of Python's dates."""
EARLIEST_TIME = -62_104_060_800_000
"""The earliest event time: the first day of the second year, so that less than a year can be taken off."""


def time_in_json(value: bytes, path: Sequence[str], within: Sequence[str] = ()) -> int:
    """Return the event time in a field of a JSON object, in milliseconds since the epoch.

    Args:
        value: the JSON object.
        path: the name of the field, after the names of the fields that contain it.
        within: the names of the fields around the value that has the path, such as that of a payload.

    Raises:
        ValueError: if the field is missing, or is no time; the text says why.

    >>> time_in_json(b'{"at": "2001-09-09T01:46:40Z"}', ["at"])
    1000000000000
    >>> time_in_json(b'{"click": {"at": 1000000000}}', ["click", "at"])
    1000000000000
    """
    import msgspec  # noqa: PLC0415 - only programs with event time in fields need it

    whole = (*within, *path)
    try:
        found = _decoder(whole)(value)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"the field {'.'.join(path)} of the record's value cannot be read: {error}"
        ) from None
    for _ in whole:
        found = found.field
    return _time(found, path)


def time_in_decoded(value: Any, path: Sequence[str]) -> int:
    """Return the event time in a field of a decoded value, in milliseconds since the epoch.

    Args:
        value: a mapping, or an object with attributes.
        path: the name of the field, after the names of the fields that contain it.

    Raises:
        ValueError: if the field is missing, or is no time; the text says why.

    >>> time_in_decoded({"click": {"at": 1000000000}}, ["click", "at"])
    1000000000000
    """
    for name in path:
        try:
            value = value[name] if isinstance(value, Mapping) else getattr(value, name)
        except (KeyError, AttributeError):
            raise ValueError(f"the record's value has no field {'.'.join(path)}") from None
    return _time(value, path)


def _time(found: Any, path: Sequence[str]) -> int:
    try:
        return _milliseconds(found)
    except (ValueError, OverflowError):
        raise ValueError(
            f"the field {'.'.join(path)} of the record's value is no time: {found!r:.100}"
        ) from None


@lru_cache(64)
def _decoder(path: tuple[str, ...]) -> Callable[[bytes], Any]:
    """Return a decoder of JSON objects that reads only the field at ``path``."""
    import msgspec  # noqa: PLC0415 - as above

    kind: Any = Any
    for name in reversed(path):
        kind = msgspec.defstruct("Timed", [("field", kind)], rename={"field": name})
    return msgspec.json.Decoder(kind).decode


def _milliseconds(time: Any) -> int:
    """Return a time in milliseconds since the epoch; a time without a time zone is in UTC.

    Raises:
        ValueError: if it is no time.
    """
    if isinstance(time, str):
        text = time.strip()
        time = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in {"Z", "z"} else text)
    if isinstance(time, datetime):
        return _checked(to_epoch_millis(time if time.tzinfo else time.replace(tzinfo=timezone.utc)))
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise ValueError  # noqa: TRY004 - a value of a record, not an argument
    return _checked(int(time * 1000 if abs(time) < _SECONDS_BELOW else time))


def _checked(millis: int) -> int:
    if not EARLIEST_TIME <= millis <= LATEST_TIME:
        raise ValueError
    return millis


def checked_timestamp(millis: int) -> int:
    """Check the timestamp of a record, and return it.

    Raises:
        ValueError: if it is no time of the years 2 to 9998.
    """
    try:
        return _checked(millis)
    except ValueError:
        raise ValueError(f"the record's timestamp is no time in milliseconds: {millis}") from None
