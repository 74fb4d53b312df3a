# SPDX-License-Identifier: Apache-2.0
"""Checks what tests give to an application under test, so that an error names the call with the mistake."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from statefun.sdk.address import Address
from statefun.sdk.errors import DefinitionError
from statefun.sdk.times import EPOCH

Content = str | bytes | None
"""The key or value of a record: a string is encoded in UTF-8, and the value None is a tombstone."""

_MAX_PARTITION = 2**31 - 1


@attrs.frozen
class WrittenRecord:
    """The parts of a record that a test writes to a topic, as Kafka has them."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: datetime | None
    """None: the present time of the application."""
    partition: int | None
    """None: the test does not choose the partition."""


def written_record(
    key: Content,
    value: Content,
    headers: Mapping[str, Content] | None,
    timestamp: datetime | None,
    partition: int | None,
) -> WrittenRecord:
    """Return the parts of a record that a test gives to ``produce``.

    Raises:
        DefinitionError: if a part is not what Kafka allows.
    """
    return WrittenRecord(
        _as_bytes("key", key),
        _as_bytes("value", value),
        _as_headers({} if headers is None else headers),
        _checked_timestamp(timestamp),
        _checked_partition(partition),
    )


def _as_bytes(part: str, content: object) -> bytes | None:
    if isinstance(content, str):
        return content.encode()
    if content is None or isinstance(content, bytes):
        return content
    raise DefinitionError(
        f"the {part} of a record must be a string, bytes or None, not {content!r}: encode the {part} as "
        "the producers of the topic do"
    )


def _as_headers(headers: object) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(headers, Mapping):
        raise DefinitionError(
            f"the headers of a record must be a mapping of names to values, not {headers!r}"
        )
    for name in headers:
        if not isinstance(name, str):
            raise DefinitionError(f"the name of a header must be a string, not {name!r}")
    return tuple((name, _as_bytes(f"header {name}", each)) for name, each in headers.items())


def _checked_timestamp(timestamp: datetime | None) -> datetime | None:
    checked = checked_time("the timestamp of a record", timestamp)
    if checked is not None and checked < EPOCH:
        raise DefinitionError(f"the timestamp of a record must not be before 1970, as {checked} is")
    return checked


def _checked_partition(partition: object) -> int | None:
    if partition is None:
        return None
    # A bool is an int.
    if type(partition) is int and 0 <= partition <= _MAX_PARTITION:
        return partition
    raise DefinitionError(
        f"the partition of a record must be a number from 0 to {_MAX_PARTITION}, not {partition!r}"
    )


def checked_time(what: str, time: object) -> datetime | None:
    """Check that a time that a test gives is None or a datetime with a time zone, and return it.

    Args:
        what: the name of the time in the error.
        time: the time.

    Raises:
        DefinitionError: if it is something else.
    """
    if time is None or (isinstance(time, datetime) and time.utcoffset() is not None):
        return time
    raise DefinitionError(
        f"{what} must be a datetime with a time zone, such as "
        f"datetime(2026, 1, 1, tzinfo=timezone.utc), not {time!r}"
    )


def checked_duration(duration: object, parts: Mapping[str, Any]) -> timedelta:
    """Return the duration that the arguments of ``advance`` give.

    Raises:
        DefinitionError: if the arguments do not give one duration, or the duration is negative.
    """
    advice = "give advance a timedelta, or parts of one, such as advance(hours=3)"
    if (duration is None) is not bool(parts):
        raise DefinitionError(f"{advice}, not {'both' if parts else 'nothing'}")
    if duration is None:
        try:
            duration = timedelta(**parts)
        except (TypeError, OverflowError) as error:
            given = ", ".join(f"{name}={value!r}" for name, value in parts.items())
            raise DefinitionError(f"{advice}, not {given} ({error})") from error
    if not isinstance(duration, timedelta):
        raise DefinitionError(f"{advice}, not {duration!r}")
    if duration < timedelta(0):
        raise DefinitionError("the duration must not be negative: time cannot go back")
    return duration


def checked_address(what: str, address: object) -> Address:
    """Check that an argument of a test is an Address, and return it.

    Args:
        what: the name of the argument in the error.
        address: the argument.

    Raises:
        DefinitionError: if it is something else.
    """
    if isinstance(address, Address):
        return address
    raise DefinitionError(
        f"{what} must be an Address, such as {_example(address)}, not {address!r}"
    )


def _example(given: object) -> str:
    """Return Python code that makes an Address, with the parts of the string that the test has given if possible."""
    if not isinstance(given, str) or given.count("/") not in {1, 2}:
        return 'Address("com.example.shop/cart", "Ada")'
    namespace, name, *ids = given.split("/")
    return f'Address("{namespace}/{name}", "{ids[0] if ids else "some id"}")'


def checked_function(typename: object) -> str:
    """Check that the typename that a test gives to ``send`` is a string, and return it.

    Raises:
        DefinitionError: if it is something else.
    """
    if isinstance(typename, str):
        return typename
    raise DefinitionError(
        'send takes the typename of a function, the id and the value, such as send("com.example.shop/cart", '
        f'"Ada", 5); {typename!r} is no typename'
    )
