# SPDX-License-Identifier: Apache-2.0
"""Lists the shards of streams, and reads the server's time from the answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import attrs

from statefun.kinesis.aggregation import HashRange
from statefun.kinesis.aws_client import RequestFailure, trouble_of
from statefun.kinesis.shard_pages import is_closed, shard_pages
from statefun.kinesis.shards import Shard

_NOT_THERE = "ResourceNotFoundException"


class ShardList:
    """The shards of some streams, as Kinesis has listed them last."""

    def __init__(self, client: Any, streams: Sequence[str]) -> None:
        self._client = client
        self._streams = streams
        self._shards: dict[str, dict[str, Shard]] = {}
        self.listed_at = 0.0
        """When the shards of all streams were listed last, by the monotonic clock."""
        self.now = self.latest = 0.0
        """When the shards were listed, by the server's clock, in seconds since the epoch.

        The clock is known only to the second: ``now`` is the earliest possible time, ``latest`` the latest.
        """

    @property
    def by_stream(self) -> Mapping[str, Mapping[str, Shard]]:
        """The shards of each stream, by name of the stream and id of the shard; includes closed shards."""
        return self._shards

    def of(self, stream: str) -> dict[str, Shard]:
        """Return the shards of a stream, by their ids; includes closed shards."""
        return self._shards.get(stream, {})

    def update(self) -> RequestFailure | None:
        """List the shards of all streams again; return why a stream cannot be listed, or None."""
        for name in self._streams:
            try:
                self._shards[name] = self._listed_shards(name)
            except Exception as error:  # noqa: BLE001 - boto3 makes the classes of its errors
                trouble = trouble_of(error)
                if trouble.code == _NOT_THERE:
                    text = f"there is no stream {name}; create it, or correct its name"
                    return attrs.evolve(trouble, text=text)
                return trouble
        self.listed_at = time.monotonic()
        return None

    def _listed_shards(self, name: str) -> dict[str, Shard]:
        shards: dict[str, Shard] = {}
        for answer in shard_pages(self._client, name):
            self.now, self.latest = server_time(answer)
            for shard in answer["Shards"]:
                keys = shard["HashKeyRange"]
                shards[shard["ShardId"]] = Shard(
                    name,
                    shard["ShardId"],
                    HashRange(int(keys["StartingHashKey"]), int(keys["EndingHashKey"])),
                    tuple(
                        shard[parent]
                        for parent in ("ParentShardId", "AdjacentParentShardId")
                        if shard.get(parent)
                    ),
                    is_closed(shard),
                )
        return shards


def server_time(answer: Mapping[str, Any]) -> tuple[float, float]:
    """Return the earliest and the latest time that a server's clock may have shown when it answered.

    Both are in seconds since the epoch. The answer has the server's time only in whole seconds. The latest
    time is the end of that second. The earliest time is the beginning of that second, or this machine's
    time if it lies in that second. If the answer has no time, both are this machine's time. An ingress
    begins to read at the earliest time, because Kinesis does not read from a time in the future.
    """
    now = datetime.now(timezone.utc)
    headers = answer["ResponseMetadata"].get("HTTPHeaders", {})
    try:
        server = parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError):
        return now.timestamp(), now.timestamp()
    agrees = timedelta(0) <= now - server < timedelta(seconds=1)
    return (now if agrees else server).timestamp(), server.timestamp() + 1
