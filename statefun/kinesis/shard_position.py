# SPDX-License-Identifier: Apache-2.0
"""How far streams are read, shard by shard; together this is the offset of the source."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import attrs

from statefun.components.running import Offset

Shards = dict[str, "ShardPosition"]
"""Positions by the ids of shards."""


@attrs.frozen
class ShardPosition:
    """How far a shard is read."""

    after: str | None = None
    """The sequence number of the last read record; None if no record was read yet."""
    count: int = 0
    """How many records were read: the number of the next record, which is its offset for functions."""
    ended: bool = False
    """Whether the shard is closed and all of it is read, so that the shards that replace it begin."""

    @property
    def number(self) -> int:
        """The sequence number as a number, for comparisons; -1 before the first record."""
        return -1 if self.after is None else int(self.after)


@attrs.frozen
class StreamPosition:
    """How far a stream is read."""

    begin: float | None
    """The time of the first record to read, in seconds since the epoch; None for the oldest record."""
    shards: Shards
    forgotten: int = 0
    """How many records were read of ended shards that ``shards`` no longer has."""

    @property
    def begin_date(self) -> datetime | None:
        """``begin`` as a date with a time zone."""
        return None if self.begin is None else datetime.fromtimestamp(self.begin, timezone.utc)


def encode_offset(streams: Mapping[str, StreamPosition]) -> Offset:
    """Return the offset of the source; its ``records`` counts all records that were read."""
    content = {
        name: {
            "begin": stream.begin,
            "forgotten": stream.forgotten,
            "shards": {
                shard: attrs.asdict(position, filter=lambda _, value: bool(value))
                for shard, position in stream.shards.items()
            },
        }
        for name, stream in streams.items()
    }
    counts = (each.count for stream in streams.values() for each in stream.shards.values())
    forgotten = sum(stream.forgotten for stream in streams.values())
    return {"records": sum(counts) + forgotten, "streams": content}


def decode_offset(offset: Mapping[str, Any]) -> dict[str, StreamPosition]:
    """Return the positions of streams in an offset of the source.

    >>> shards = {"shardId-000000000000": ShardPosition("49", 2)}
    >>> positions = {"users": StreamPosition(None, shards)}
    >>> encode_offset(positions)["records"], decode_offset(encode_offset(positions)) == positions
    (2, True)
    """
    return {
        name: StreamPosition(
            stream["begin"],
            {shard: ShardPosition(**position) for shard, position in stream["shards"].items()},
            stream["forgotten"],
        )
        for name, stream in offset["streams"].items()
    }
