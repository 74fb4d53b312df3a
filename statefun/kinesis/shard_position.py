# SPDX-License-Identifier: Apache-2.0
"""Positions of streams and shards: how far each is read. The offset of the Spark source holds them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import attrs

from statefun.components.running import Offset

Shards = dict[str, "ShardPosition"]
"""The positions of shards, by the ids of the shards."""


@attrs.frozen
class ShardPosition:
    """How far a shard is read."""

    after: str | None = None
    """The sequence number of the last read record; None if no record was read yet."""
    count: int = 0
    """How many records of the shard were read; the next record has this number as its offset."""
    ended: bool = False
    """Whether the shard is closed and read to its end, so that the shards that replace it can be read."""

    @property
    def number(self) -> int:
        """``after`` as a number, for comparisons; -1 if no record was read yet."""
        return -1 if self.after is None else int(self.after)


@attrs.frozen
class StreamPosition:
    """How far a stream is read."""

    begin: float | None
    """The time from which on records are read, in seconds since the epoch; None for all records."""
    shards: Shards
    forgotten: int = 0
    """How many records were read of shards that have ended and are no longer in ``shards``."""

    @property
    def begin_date(self) -> datetime | None:
        """``begin`` as a date in UTC; None if ``begin`` is None."""
        return None if self.begin is None else datetime.fromtimestamp(self.begin, timezone.utc)


def encode_offset(streams: Mapping[str, StreamPosition]) -> Offset:
    """Return the positions of streams as an offset of the Spark source.

    ``records`` of the offset is the number of all records that were read.
    """
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
    """Return the positions of streams that an offset of the Spark source holds.

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
