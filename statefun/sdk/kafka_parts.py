# SPDX-License-Identifier: Apache-2.0
"""Encodes and checks the parts of records for Kafka egresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from statefun.sdk.encoding import typed
from statefun.sdk.errors import DefinitionError, caused
from statefun.sdk.shortening import shortened
from statefun.sdk.times import EPOCH

Headers = Mapping[str, "str | bytes | None"] | Iterable[tuple[str, "str | bytes | None"]]
"""Headers as a mapping from names to values, or as pairs, of which several may have the same name."""

_MAX_PARTITION = 2**31 - 1
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
_TOPIC_SHOWN = 300
"""The largest number of characters of an invalid topic name that error texts quote."""


@lru_cache
def topic_problem(topic: str) -> str:
    """Return why a name is not a valid name of a Kafka topic; empty if the name is valid.

    >>> topic_problem("user-events.v1_2")
    ''
    >>> topic_problem("no such/topic!")
    "'no such/topic!' is not a name of a topic: it must have 1 to 249 of the characters a-z, A-Z, 0-9, ., _ and -"
    """
    if _TOPIC.fullmatch(topic):
        return ""
    return (
        f"{shortened(topic, _TOPIC_SHOWN)!r} is not a name of a topic: it must have 1 to 249 of the "
        "characters a-z, A-Z, 0-9, ., _ and -"
    )


def record_value(typename: Any, topic: Any, key: Any, value: Any, value_type: Any) -> bytes | None:
    """Check the topic and the key of a record, and encode its value.

    Without a ``value_type``, the value is encoded as Kafka's serializers do, and the result for the value None is
    None, which makes a tombstone. The arguments may be of any class, as the user gives them.

    Raises:
        DefinitionError: if the topic or the key is invalid, or the value cannot be encoded.
        UnicodeEncodeError: if the key or the value is a string that UTF-8 cannot encode.
    """
    if not (isinstance(topic, str) and topic):
        raise DefinitionError(f"a record for egress {typename} needs a topic, not {topic!r}")
    problem = topic_problem(topic)
    if problem:
        raise DefinitionError(f"a record for egress {typename}: {problem}")
    if not (key is None or isinstance(key, str)):
        raise DefinitionError(
            f"a record for egress {typename}, topic {topic}: "
            f"its key must be a string or None, not {key!r}"
        )
    if key:
        key.encode()  # a lone surrogate is noticed here, not when records are written
    if value_type is None and isinstance(value, str):
        return value.encode()
    return _value_bytes(typename, topic, value, value_type)


def _value_bytes(typename: Any, topic: str, value: Any, value_type: Any) -> bytes | None:
    if value_type is not None:
        return typed(value, value_type).value
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return struct.pack(">i", value)
        if isinstance(value, float):
            return struct.pack(">d", value)
    except struct.error as error:
        text = (
            f"a record for egress {typename}, topic {topic}: the value {value!r} cannot be "
            f"encoded: {error}; give a value_type such as LongType"
        )
        raise caused(DefinitionError(text), error) from error
    raise DefinitionError(
        f"a record for egress {typename}, topic {topic}: a value of class {type(value).__name__} "
        "needs a value_type; without a value_type, a value must be bytes, str, int or float"
    )


def header_bytes(typename: Any, topic: str, headers: Any) -> tuple[tuple[str, bytes | None], ...]:
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
                raise TypeError(
                    f"header {name!r} cannot have a value of class {type(value).__name__}"
                )
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnicodeEncodeError):
            raise
        text = (
            f"a record for egress {typename}, topic {topic}: headers must be names with values that "
            f"are bytes, strings or None: {error}"
        )
        raise caused(DefinitionError(text), error) from error
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    )


def are_encoded(topic: Any, key: Any, value: Any, headers: Any) -> bool:
    """Return whether the parts of a record are valid, and encoded as far as :func:`record_value` encodes them.

    False for some rare records that are valid, such as those with a key that is not ASCII.
    """
    if type(topic) is not str or topic_problem(topic) or type(headers) is not tuple:
        return False
    if not (key is None or (type(key) is str and key.isascii())):
        return False
    for each in headers:
        if type(each) is not tuple or len(each) != 2:  # noqa: PLR2004 - a name and a value
            return False
        name, content = each
        if type(name) is not str or not name.isascii():
            return False
        if not (content is None or type(content) is bytes):
            return False
    return value is None or type(value) is bytes


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
