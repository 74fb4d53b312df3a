# SPDX-License-Identifier: Apache-2.0
"""The origin of a record: its topic, partition, offset, timestamp and route.

When a dead letter is replayed, headers of the new record carry the origin of the first one. Functions,
deserializers and dead letters get that first origin, and not the origin of the new record.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping

from statefun.engine.letters import (
    ENCODED_HEADER,
    EVENT_TIME_HEADER,
    HEADER_PREFIX,
    TARGET_TYPE_HEADER,
    VALUE_TYPE_HEADER,
)
from statefun.protocol.runtime_pb2 import RecordOrigin

_TOPIC = f"{HEADER_PREFIX}topic"
_NUMBERS = ("partition", "offset", "timestamp", "route")
_KEY = f"{HEADER_PREFIX}key"


def facts_of(origin: RecordOrigin) -> dict[str, str | int]:
    """Return a record's origin as facts for a dead letter, by names of headers without their prefix."""
    return {name: getattr(origin, name) for name in ("topic", *_NUMBERS)}


def key_of(origin: RecordOrigin, id_: bytes | None) -> bytes | None:
    """Return the key of a record; None if the record has no key.

    Args:
        origin: the origin of the record, which holds the key if it is not the id of the record's target.
        id_: the id of the record's target.
    """
    if origin.keyless:
        return None
    return origin.key if origin.HasField("key") else id_


def replay_headers(
    facts: Mapping[str, str], key: bytes | None, id_: bytes | None
) -> Iterator[tuple[str, bytes | None]]:
    """Return the headers of a replayed record: its target, value type, event time and origin.

    Args:
        facts: the facts of the dead letter, by names of headers without their prefix.
        key: the record's key.
        id_: the id of the target address.
    """
    numbers = (HEADER_PREFIX + name for name in _NUMBERS)
    of_message = (TARGET_TYPE_HEADER, VALUE_TYPE_HEADER, ENCODED_HEADER, EVENT_TIME_HEADER)
    for name in (*of_message, _TOPIC, *numbers):
        value = facts.get(name.removeprefix(HEADER_PREFIX))
        if value:
            yield name, value.encode()
    if key != id_:
        yield _KEY, key


def original(origin: RecordOrigin) -> RecordOrigin:
    """Return the origin that a replayed record had before it became a dead letter.

    Args:
        origin: the origin of the replayed record itself, with its headers, which hold the first origin.
    """
    own = [header for header in origin.headers if not header.key.startswith(HEADER_PREFIX)]
    facts = {header.key: header for header in origin.headers}
    first = RecordOrigin(headers=own)
    if origin.HasField("key"):
        first.key = origin.key
    if _KEY in facts and facts[_KEY].HasField("value"):
        first.key = facts[_KEY].value
    elif _KEY in facts:
        first.keyless = True
    try:
        first.topic = facts[_TOPIC].value.decode()
        for name in _NUMBERS:
            setattr(first, name, int(facts[HEADER_PREFIX + name].value))
    except (
        KeyError,
        ValueError,
    ):  # the letter of a message between functions, or a record of another program
        first.topic = origin.topic
        for name in _NUMBERS:
            setattr(first, name, getattr(origin, name))
    return first


def headers_of(text: str | None) -> Iterator[tuple[str, bytes | None]]:
    """Yield names and values of a record's headers from their form in a row: JSON with values in Base64.

    >>> list(headers_of('[{"key":"a","value":"YQ=="},{"key":"none"}]'))
    [('a', b'a'), ('none', None)]
    """
    for header in json.loads(text or "[]"):
        value = header.get("value")
        yield header["key"], None if value is None else b64decode(value)
