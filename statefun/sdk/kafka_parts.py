# SPDX-License-Identifier: Apache-2.0
"""Encodes and checks the parts of records for Kafka egresses."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from statefun.sdk.errors import DefinitionError
from statefun.sdk.times import EPOCH
from statefun.sdk.types import Type, typed

Headers = Mapping[str, "str | bytes | None"] | Iterable[tuple[str, "str | bytes | None"]]
"""Names and values; given as pairs, a name may occur more than once."""

_MAX_PARTITION = 2**31 - 1


def value_bytes(
    typename: str, topic: str, value: Any, value_type: Type[Any] | None
) -> bytes | None:
    """Encode a value: with its type, or as Kafka's own serializers do.

    Raises:
        DefinitionError: if the value cannot be encoded.
        UnicodeEncodeError: if it is a text that is not valid Unicode.
    """
    if value_type is not None:
        return typed(value, value_type).value
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return struct.pack(">i", value)
        if isinstance(value, float):
            return struct.pack(">d", value)
    except struct.error as error:
        raise DefinitionError(
            f"a record for egress {typename}, topic {topic}: {value!r} does not fit: {error}; "
            "give a value_type such as LongType"
        ) from error
    raise DefinitionError(
        f"a record for egress {typename}, topic {topic}: a {type(value).__name__} needs its "
        "value_type; without one a value is bytes, str, int or float"
    )


def header_bytes(
    typename: str, topic: str, headers: Headers
) -> tuple[tuple[str, bytes | None], ...]:
    """Encode headers.

    Raises:
        DefinitionError: if the headers are no names and values.
        UnicodeEncodeError: if a name or value is not valid Unicode.
    """
    try:
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        for name, value in pairs:
            name.encode()
            if not (value is None or isinstance(value, (str, bytes))):
                raise TypeError(f"header {name!r} is {value!r}")
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnicodeEncodeError):
            raise
        raise DefinitionError(
            f"a record for egress {typename}, topic {topic}: headers are names with values that "
            f"are bytes, strings or None: {error}"
        ) from error
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    )


def check_placement(typename: str, topic: str, partition: object, timestamp: object) -> None:
    """Check partition and timestamp of a record.

    Raises:
        DefinitionError: if one of them is invalid.
    """
    wrong = ""
    if not (partition is None or _is_partition(partition)):
        wrong = f"a partition is a number from 0 on, not {partition!r}"
    elif not (timestamp is None or (isinstance(timestamp, datetime) and timestamp.tzinfo)):
        wrong = f"a timestamp is a datetime with a time zone, not {timestamp!r}"
    elif isinstance(timestamp, datetime) and timestamp < EPOCH:
        wrong = f"a timestamp is not before 1970, as {timestamp} is"
    if wrong:
        raise DefinitionError(f"a record for egress {typename}, topic {topic}: {wrong}")


def _is_partition(number: object) -> bool:
    return (
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MAX_PARTITION
    )
