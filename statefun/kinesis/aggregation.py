# SPDX-License-Identifier: Apache-2.0
r"""Splits a Kinesis record into the records that the Kinesis Producer Library has aggregated into it.

The format is documented in ``aggregation-format.md`` of amazon-kinesis-producer: four magic bytes, a
Protobuf message, and the MD5 digest of the message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from statefun.protocol.kinesis_aggregation_pb2 import AggregatedPart, AggregatedRecord

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_LAST_HASH_KEY = 2**128 - 1


class HashRange(NamedTuple):
    """The range of hash keys that belong to a shard: its first and its last hash key."""

    first: int
    last: int


def parts(
    key: str, data: bytes, shard: HashRange, *, as_formerly: bool = False
) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the value of each record that was aggregated into one record of Kinesis.

    A record that is not aggregated has one part: its own key and value. A part whose hash key belongs to
    another shard is left out: the shard was split or merged after the producer had aggregated the parts.
    The producer sees in Kinesis's answer which shard has the record, and sends such a part again.

    >>> everything = HashRange(0, 2**128 - 1)
    >>> list(parts("Ada", b"Hello", everything))
    [('Ada', b'Hello')]

    Args:
        key: the partition key of the record.
        data: the data of the record.
        shard: the range of hash keys that belong to the record's shard.
        as_formerly: whether to leave out parts whose hash keys no shard may have, as earlier versions did; otherwise, a
            record with such a part is not aggregated.
    """
    aggregate = _aggregate(data, as_formerly=as_formerly)
    if aggregate is None:
        yield key, data
        return
    keys = list(aggregate.partition_key_table)  # parts with one key share one string
    for part in aggregate.records:
        part_key = keys[part.partition_key_index]
        if part.HasField("explicit_hash_key_index"):
            hash_key = int(aggregate.explicit_hash_key_table[part.explicit_hash_key_index])
        else:
            digest = hashlib.md5(part_key.encode(), usedforsecurity=False).digest()
            hash_key = int.from_bytes(digest, "big")
        if shard.first <= hash_key <= shard.last:
            yield part_key, part.data


def _aggregate(data: bytes, *, as_formerly: bool) -> AggregatedRecord | None:
    """Return the Protobuf message in a record's data; None if the record is not aggregated."""
    if not data.startswith(_MAGIC) or len(data) <= len(_MAGIC) + _DIGEST:
        return None
    message = data[len(_MAGIC) : -_DIGEST]
    if hashlib.md5(message, usedforsecurity=False).digest() != data[-_DIGEST:]:
        return None
    try:
        aggregate = AggregatedRecord.FromString(message)
        are_parts = all(
            _is_part(part, aggregate, as_formerly=as_formerly) for part in aggregate.records
        )
    except (DecodeError, ValueError):
        return None
    return aggregate if are_parts else None


def _is_part(part: AggregatedPart, aggregate: AggregatedRecord, *, as_formerly: bool) -> bool:
    """Return whether a part has a key, and a hash key that a shard may have.

    A part with another hash key would belong to no shard.

    Raises:
        ValueError: if an explicit hash key is no number.
    """
    if part.partition_key_index >= len(aggregate.partition_key_table):
        return False
    if not part.HasField("explicit_hash_key_index"):
        return True
    hash_keys, index = aggregate.explicit_hash_key_table, part.explicit_hash_key_index
    if index >= len(hash_keys):
        return False
    hash_key = int(hash_keys[index])
    return as_formerly or 0 <= hash_key <= _LAST_HASH_KEY
