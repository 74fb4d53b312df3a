# SPDX-License-Identifier: Apache-2.0
r"""Records that the Kinesis Producer Library has put together into one.

The format is that of ``aggregation-format.md`` of amazon-kinesis-producer: four magic bytes, a
Protobuf message, and the MD5 digest of the message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from statefun.protocol.kinesis_aggregation_pb2 import AggregatedRecord

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16


class HashRange(NamedTuple):
    """The hash keys of a shard, both included."""

    first: int
    last: int


def parts(key: str, data: bytes, shard: HashRange) -> Iterator[tuple[str, bytes]]:
    """Yield the keys and values of the records in a record of Kinesis.

    A part whose key belongs to another shard is left out: the shards were divided anew after the
    parts were put together, and its producer, which is told, sends it once more.

    >>> everything = HashRange(0, 2**128 - 1)
    >>> list(parts("Ada", b"Hello", everything))
    [('Ada', b'Hello')]

    Args:
        key: the record's partition key.
        data: its data.
        shard: the hash keys of its shard.
    """
    aggregated = _aggregated(data)
    if aggregated is None:
        yield key, data
        return
    keys = list(aggregated.partition_key_table)  # each text once, however many parts have it
    for part in aggregated.records:
        own = keys[part.partition_key_index]
        if part.HasField("explicit_hash_key_index"):
            hash_key = int(aggregated.explicit_hash_key_table[part.explicit_hash_key_index])
        else:
            digest = hashlib.md5(own.encode(), usedforsecurity=False).digest()
            hash_key = int.from_bytes(digest, "big")
        if shard.first <= hash_key <= shard.last:
            yield own, part.data


def _aggregated(data: bytes) -> AggregatedRecord | None:
    """Return the message in a record's data, if that is what it is."""
    if not data.startswith(_MAGIC) or len(data) <= len(_MAGIC) + _DIGEST:
        return None
    message = data[len(_MAGIC) : -_DIGEST]
    if hashlib.md5(message, usedforsecurity=False).digest() != data[-_DIGEST:]:
        return None
    try:
        found = AggregatedRecord.FromString(message)
        for part in found.records:
            _ = found.partition_key_table[part.partition_key_index]
            if part.HasField("explicit_hash_key_index"):
                _ = int(found.explicit_hash_key_table[part.explicit_hash_key_index])
    except (DecodeError, IndexError, ValueError):
        return None
    return found
