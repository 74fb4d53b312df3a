# SPDX-License-Identifier: Apache-2.0
"""Reads the event time of a record from a field of its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

from statefun.sdk.times import to_epoch_millis
from statefun.sdk.types import Type

_SECONDS_BELOW = 100_000_000_000
"""A number below this one counts seconds since the epoch: as milliseconds, it would be a time before 1973."""
LATEST_TIME = 253_370_764_800_000
"""The latest event time, in milliseconds since the epoch: the first day of the last year of Python's dates."""
EARLIEST_TIME = -62_104_060_800_000
"""The earliest event time: the first day of the second year, so that less than a year can be taken off."""


def time_in(value: bytes | None, path: Sequence[str], type_: Type[Any] | None) -> int:
    """Return the event time in a field of a value, in milliseconds since the epoch.

    Args:
        value: the value of a record: a JSON object, or bytes that ``type_`` decodes.
        path: the name of the field, after the names of the fields that contain it.
        type_: the type of the value, if one is registered.

    Raises:
        ValueError: if the field is missing, or is no time; the text says why.

    >>> time_in(b'{"at": "2001-09-09T01:46:40Z"}', ["at"], None)
    1000000000000
    >>> time_in(b'{"click": {"at": 1000000000}}', ["click", "at"], None)
    1000000000000
    """
    name = ".".join(path)
    if value is None:
        raise ValueError(f"the record has no value, and so no field {name}")
    if value[:1] == b"{" or type_ is None:
        found = _in_json(value, tuple(path))
    else:
        found = _in_decoded(type_.decode(type_.typename, value), path)
    try:
        return _milliseconds(found)
    except (ValueError, OverflowError):
        raise ValueError(
            f"the field {name} of the record's value is no time: {found!r:.100}"
        ) from None


def _in_json(value: bytes, path: tuple[str, ...]) -> Any:
    import msgspec  # noqa: PLC0415 - only programs with event time in fields need it

    try:
        found = _decoder(path)(value)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"the field {'.'.join(path)} of the record's value cannot be read: {error}"
        ) from None
    for _ in path:
        found = found.field
    return found


@lru_cache(64)
def _decoder(path: tuple[str, ...]) -> Callable[[bytes], Any]:
    """Return a decoder of JSON objects that reads only the field at ``path``."""
    import msgspec  # noqa: PLC0415 - as above

    kind: Any = Any
    for name in reversed(path):
        kind = msgspec.defstruct("Timed", [("field", kind)], rename={"field": name})
    return msgspec.json.Decoder(kind).decode


def _in_decoded(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        try:
            value = value[name] if isinstance(value, Mapping) else getattr(value, name)
        except (KeyError, AttributeError):
            raise ValueError(f"the record's value has no field {'.'.join(path)}") from None
    return value


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
