# SPDX-License-Identifier: Apache-2.0
"""Plain values: a shard of a Kinesis stream, and a record that was fetched from it."""

from __future__ import annotations

from datetime import datetime

import attrs

from statefun.kinesis.aggregation import HashRange, parts

_RECORD = 500
_PART = 150
"""Approximate memory in bytes: of a record without its parts (_RECORD), of a part without key and value."""


@attrs.frozen
class Shard:
    """A shard of a Kinesis stream."""

    stream: str
    id: str
    hash_keys: HashRange
    parents: tuple[str, ...] = ()
    """The ids of the shards that this shard replaces after a split or a merge."""
    is_closed: bool = False
    """Whether the shard gets no more records, because a split or a merge has replaced it."""

    @property
    def partition(self) -> int:
        """The number in the shard's id.

        >>> Shard("users", "shardId-000000000012", HashRange(0, 1)).partition
        12
        """
        return int(self.id.rpartition("-")[2])


@attrs.frozen
class FetchedRecord:
    """A fetched record of Kinesis; it has several parts if its producer has aggregated several records."""

    sequence: str
    number: int
    """``sequence``, the sequence number, as a number for comparisons."""
    arrival: datetime
    parts: tuple[tuple[str, bytes], ...]
    """The key and the value of each aggregated record."""

    @property
    def size(self) -> int:
        """Approximate memory that the record takes in the driver, in bytes."""
        return _RECORD + sum(_PART + len(key) + len(value) for key, value in self.parts)

    def as_formerly(self, shard: Shard) -> FetchedRecord:
        """Return the record with the parts that earlier versions found in it, as :func:`parts` describes."""
        if len(self.parts) != 1:
            return self  # it is aggregated
        (key, value) = self.parts[0]
        former = parts(key, value, shard.hash_keys, as_formerly=True)
        return attrs.evolve(self, parts=tuple(former))
