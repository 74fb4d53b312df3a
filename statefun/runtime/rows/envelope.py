# SPDX-License-Identifier: Apache-2.0
"""The rows on their way to functions: one message for one address each."""

from __future__ import annotations

from functools import cache

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from statefun.sdk.address import Address

SEPARATOR = b"\0"

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
SCHEMA = StructType(
    [
        StructField("target", BinaryType()),
        # Rows of one target are invoked in this order. For ingress records it is the Kafka
        # offset, which orders what came from the same partition; delayed messages that are due
        # are first ordered by their timestamps.
        StructField("offset", LongType()),
        # An address key, or null for a record from an ingress.
        StructField("caller", BinaryType()),
        StructField("typename", StringType()),
        StructField("value", BinaryType()),
        # Of the ingress record; null for messages between functions.
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        # Milliseconds since the epoch: of the ingress record, or when a delayed message was due.
        StructField("timestamp", LongType()),
        # Its key, if that could not become an id.
        StructField("key", BinaryType()),
        StructField("headers", HEADERS),
        # Trace-context headers, of the record or carried from it: 'name=value', a line each.
        StructField("trace", StringType()),
    ]
)


HEADER_PREFIX = "statefun-"
"""Headers of dead letters that begin with it are about the failure; the others are the record's."""
TARGET_TYPE_HEADER = f"{HEADER_PREFIX}target-type"
"""The typename of the function that a dead letter was for."""
VALUE_TYPE_HEADER = f"{HEADER_PREFIX}type"
"""The typename of a dead letter's value."""

REPLAYED = "replayed:"
"""What the topics of replayed records begin with, in rows: a topic's name has no colon."""

RECORDS = "statefun.records/"
"""What the typenames of values begin with that a deserializer is still to make of records."""

REJECTION_NAMESPACE = "statefun.rejected"
"""Records that no function can receive go to addresses of this namespace, one type a reason."""

UNDECODABLE_KEY = "undecodable-key"
_REASONS = {
    "null-key": "the record has no key; the key becomes the id of the address it is sent to",
    "empty-key": "the record's key is empty; the key becomes the id of the address it is sent to",
    UNDECODABLE_KEY: "the record's key is not valid UTF-8, which the id of an address has to be, or "
    "is not of the topic's keyType",
    "no-target": f"the record was to be replayed, and its headers {TARGET_TYPE_HEADER} and "
    f"{VALUE_TYPE_HEADER} do not say to which function and as what",
    "null-value": "the record has no value (a tombstone), and functions are invoked with values",
}


def rejection(name: str) -> str:
    """Say for people why a record was rejected; ``name`` is that of the address it was sent to."""
    return _REASONS[name]


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
    return Address._make((namespace, name, id_.decode(), text))


def typename_of(key: bytes) -> str:
    r"""Return the typename in a grouping key.

    >>> typename_of(b"Ada\x00com.example.fns/greeter")
    'com.example.fns/greeter'
    """
    return key.rpartition(SEPARATOR)[2].decode()


@cache
def _typename_parts(typename: bytes) -> tuple[str, str, str]:
    """Split a typename: there are few, and addresses by the million."""
    text = typename.decode()
    namespace, _, name = text.rpartition("/")
    return namespace, name, text
