# SPDX-License-Identifier: Apache-2.0
"""Encodes and checks the parts of records for Kafka egresses."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from statefun.sdk.encoding import typed
from statefun.sdk.errors import DefinitionError
from statefun.sdk.times import EPOCH
from statefun.sdk.types import Type

Headers = Mapping[str, "str | bytes | None"] | Iterable[tuple[str, "str | bytes | None"]]
"""Headers as a mapping from names to values, or as pairs, of which several may have the same name."""

_MAX_PARTITION = 2**31 - 1


def value_bytes(
    typename: str, topic: str, value: Any, value_type: Type[Any] | None
) -> bytes | None:
    """Encode a value with ``value_type``; without a ``value_type``, encode it as Kafka's serializers do.

    Without a ``value_type``, the result for the value None is None, which makes a tombstone.

    Raises:
        DefinitionError: if the value cannot be encoded.
        UnicodeEncodeError: if the value is a string that UTF-8 cannot encode.
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
            f"a record for egress {typename}, topic {topic}: the value {value!r} cannot be "
            f"encoded: {error}; give a value_type such as LongType"
        ) from error
    raise DefinitionError(
        f"a record for egress {typename}, topic {topic}: a value of class {type(value).__name__} "
        "needs a value_type; without a value_type, a value must be bytes, str, int or float"
    )


def header_bytes(
    typename: str, topic: str, headers: Headers
) -> tuple[tuple[str, bytes | None], ...]:
    """Encode the headers of a record.

    Raises:
        DefinitionError: if a header is not a pair of a name and a value.
        UnicodeEncodeError: if UTF-8 cannot encode a name or value.
    """
    try:
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        for name, value in pairs:
            name.encode()
            if not (value is None or isinstance(value, (str, bytes))):
                raise TypeError(f"header {name!r} cannot have the value {value!r}")
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnicodeEncodeError):
            raise
        raise DefinitionError(
            f"a record for egress {typename}, topic {topic}: headers must be names with values that "
            f"are bytes, strings or None: {error}"
        ) from error
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    )


def check_placement(typename: str, topic: str, partition: object, timestamp: object) -> None:
    """Check the partition and the timestamp of a record.

    Raises:
        DefinitionError: if the partition or the timestamp is invalid.
    """
    wrong = ""
    if not (partition is None or _is_partition(partition)):
        wrong = f"the partition must be a number from 0 to {_MAX_PARTITION}, not {partition!r}"
    elif not (timestamp is None or (isinstance(timestamp, datetime) and timestamp.tzinfo)):
        wrong = f"the timestamp must be a datetime with a time zone, not {timestamp!r}"
    elif isinstance(timestamp, datetime) and timestamp < EPOCH:
        wrong = f"the timestamp must not be before 1970, as {timestamp} is"
    if wrong:
        raise DefinitionError(f"a record for egress {typename}, topic {topic}: {wrong}")


def _is_partition(number: object) -> bool:
    return (
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MAX_PARTITION
    )
