# SPDX-License-Identifier: Apache-2.0
"""How far streams are read: the offset of the source, shard by shard."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import attrs

from statefun.components.running import Offset

Shards = dict[str, "ShardPosition"]
"""Positions by shard."""


@attrs.frozen
class ShardPosition:
    """How far a shard is read."""

    after: str | None = None
    """The sequence number of the last record; None if none was read yet."""
    count: int = 0
    """How many records were read: they number the shard's records, as offsets number Kafka's."""
    ended: bool = False
    """Whether the shard was closed, and all of it was read: its children follow."""

    @property
    def number(self) -> int:
        """The sequence number, to compare with; -1 before the first record."""
        return -1 if self.after is None else int(self.after)


@attrs.frozen
class StreamPosition:
    """How far a stream is read."""

    begin: float | None
    """Seconds since the epoch of the first record to read; None to read whatever there is."""
    shards: Shards
    forgotten: int = 0
    """The records of shards that have ended and are gone."""

    @property
    def begin_date(self) -> datetime | None:
        """The same with a time zone."""
        return None if self.begin is None else datetime.fromtimestamp(self.begin, timezone.utc)


def encode_offset(streams: Mapping[str, StreamPosition]) -> Offset:
    """Return the offset of the source; ``records`` counts everything that was read."""
    found = {
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
    return {"records": sum(counts) + forgotten, "streams": found}


def decode_offset(offset: Mapping[str, Any]) -> dict[str, StreamPosition]:
    """Return the positions in an offset of the source.

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
