# SPDX-License-Identifier: Apache-2.0
"""The rows on their way to functions: each is one message to one address."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from functools import cache, partial

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from statefun.sdk.address import Address

SEPARATOR = b"\0"
_make_address = partial(tuple.__new__, Address)

SCHEMA = StructType(
    [
        StructField("target", BinaryType()),
        # Rows of one target are invoked in this order. For ingress records it is the Kafka
        # offset, which orders records of one partition; delayed messages that are due
        # are first ordered by their timestamps.
        StructField("offset", LongType()),
        # An address key, or null for a record from an ingress.
        StructField("caller", BinaryType()),
        StructField("typename", StringType()),
        StructField("value", BinaryType()),
        # The headers of the ingress record; null for messages between functions.
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        # Milliseconds since the epoch: the ingress record's time, or a delayed message's due time.
        StructField("timestamp", LongType()),
        # The ingress record's key, if it could not become an id.
        StructField("key", BinaryType()),
        # Its headers, as JSON; null if there are none. Spark measures an Arrow batch after each row,
        # and a column of lists as a whole each time: 57 % of the CPU of tasks, when this was one.
        StructField("headers", StringType()),
        # Trace-context headers of the record that caused the message: 'name=value', a line each.
        StructField("trace", StringType()),
    ]
)


REPLAYED = "replayed:"
"""The prefix of replayed records' topics in rows: a real topic's name has no colon."""

REJECTION_NAMESPACE = "statefun.rejected"
"""The namespace that gets records that no function can receive; each reason has a type."""


def address_key(address: Address) -> bytes:
    r"""Encode an address as grouping key.

    The id comes first: keys are sorted by comparing bytes, and addresses of one type would
    share a long prefix. Typenames hold no NUL, so the last one separates.

    >>> address_key(Address("com.example.fns", "greeter", "Ada"))
    b'Ada\x00com.example.fns/greeter'
    """
    return address.id.encode() + SEPARATOR + address.typename.encode()


def address_of(key: bytes) -> Address:
    r"""Decode a grouping key.

    >>> str(address_of(b"Ada\x00com.example.fns/greeter"))
    'com.example.fns/greeter/Ada'
    """
    id_, _, typename = key.rpartition(SEPARATOR)
    namespace, name, text = _typename_parts(typename)
    return _make_address((namespace, name, id_.decode(), text))


def typename_of(key: bytes) -> str:
    r"""Return the typename in a grouping key.

    >>> typename_of(b"Ada\x00com.example.fns/greeter")
    'com.example.fns/greeter'
    """
    return key.rpartition(SEPARATOR)[2].decode()


def headers_of(text: str | None) -> Iterator[tuple[str | None, bytes | None]]:
    """Decode the headers in a row: names and values.

    One without a name, which Kafka's cannot be, says that the record had no key, and that its id comes
    from elsewhere.

    >>> list(headers_of('[{"key":"a","value":"YQ=="},{"key":"none"}]'))
    [('a', b'a'), ('none', None)]
    >>> list(headers_of('[{}]'))
    [(None, None)]
    """
    for header in json.loads(text or "[]"):
        value = header.get("value")
        yield header.get("key"), None if value is None else b64decode(value)


@cache
def _typename_parts(typename: bytes) -> tuple[str, str, str]:
    """Split a typename; cached, because few typenames serve millions of addresses."""
    text = typename.decode()
    namespace, _, name = text.rpartition("/")
    return namespace, name, text
