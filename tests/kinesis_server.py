# SPDX-License-Identifier: Apache-2.0
"""A real server of Kinesis's protocol (kinesalite), and what tests do with its streams."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import boto3
from languages.servers import Language, Server, make_javascript, run_javascript
from patience import PATIENCE

from statefun.kinesis.connection import Credentials
from statefun.protocol.kinesis_aggregation_pb2 import AggregatedRecord

KINESALITE = Language(
    "kinesalite",
    ("node", "npm"),
    (),
    make_javascript,
    run_javascript,
    Path(__file__).resolve().parent / "kinesis",
)
REGION = "eu-west-1"
_MOST_RECORDS = 500
_POLL_SECONDS = 0.02


class KinesisHarness:
    """The streams of a server."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.client: Any = boto3.client(
            "kinesis",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="tests",
            aws_secret_access_key="no secret",  # noqa: S106 - the server takes any
        )

    def connected(self, settings: Any) -> Any:
        """Return the settings of a component with this server in the place of theirs."""
        connection = attrs.evolve(
            settings.connection,
            region=REGION,
            endpoint=self.url,
            credentials=Credentials("tests", "no secret"),
        )
        return attrs.evolve(settings, connection=connection)

    def create(self, stream: str, shards: int = 1) -> None:
        """Create a stream."""
        self.client.create_stream(StreamName=stream, ShardCount=shards)
        self._until_active(stream)

    def delete(self, stream: str) -> None:
        """Delete a stream."""
        self.client.delete_stream(StreamName=stream)
        while stream in self.client.list_streams()["StreamNames"]:
            time.sleep(_POLL_SECONDS)

    def put(self, stream: str, records: Iterable[tuple[str, bytes]]) -> None:
        """Write records, of keys and values."""
        entries = [{"PartitionKey": key, "Data": value} for key, value in records]
        for start in range(0, len(entries), _MOST_RECORDS):
            part = entries[start : start + _MOST_RECORDS]
            answer = self.client.put_records(StreamName=stream, Records=part)
            assert answer["FailedRecordCount"] == 0

    def shards(self, stream: str) -> list[dict[str, Any]]:
        """Return the shards of a stream, also closed ones."""
        found: list[dict[str, Any]] = self.client.list_shards(StreamName=stream)["Shards"]
        return found

    def open_shards(self, stream: str) -> list[dict[str, Any]]:
        """Return the open shards of a stream, by their hash keys."""
        found = [
            shard
            for shard in self.shards(stream)
            if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
        ]
        return sorted(found, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    def split(self, stream: str, index: int = 0) -> None:
        """Split an open shard into halves."""
        shard = self.open_shards(stream)[index]
        keys = shard["HashKeyRange"]
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
        self.client.split_shard(
            StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
        )
        self._until_active(stream)

    def merge(self, stream: str, index: int = 0) -> None:
        """Merge an open shard with its neighbour."""
        one, other = self.open_shards(stream)[index : index + 2]
        self.client.merge_shards(
            StreamName=stream,
            ShardToMerge=one["ShardId"],
            AdjacentShardToMerge=other["ShardId"],
        )
        self._until_active(stream)

    def read(self, stream: str) -> list[tuple[str, bytes]]:
        """Return all records of a stream, shard by shard, parents first: keys and values."""
        found: list[tuple[str, bytes]] = []
        for shard in self.shards(stream):
            iterator = self.client.get_shard_iterator(
                StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while iterator:
                answer = self.client.get_records(ShardIterator=iterator, Limit=10_000)
                found += [(each["PartitionKey"], each["Data"]) for each in answer["Records"]]
                iterator = answer.get("NextShardIterator") if answer["Records"] else None
        return found

    def wait_for(
        self, stream: str, enough: Callable[[list[tuple[str, bytes]]], bool]
    ) -> list[tuple[str, bytes]]:
        """Return the records of a stream once they are enough; however long, while more come."""
        count, since = -1, time.monotonic()
        while not enough(found := self.read(stream)):
            if len(found) != count:
                count, since = len(found), time.monotonic()
            assert time.monotonic() - since < PATIENCE.total_seconds(), found[-20:]
            time.sleep(_POLL_SECONDS)
        return found

    def _until_active(self, stream: str) -> None:
        while self._status(stream) != "ACTIVE":
            time.sleep(_POLL_SECONDS)

    def _status(self, stream: str) -> str:
        answer = self.client.describe_stream_summary(StreamName=stream)
        return str(answer["StreamDescriptionSummary"]["StreamStatus"])


def kinesalite() -> Server:
    """Return a server; ``with`` starts and ends it."""
    return Server(KINESALITE)


def aggregated(records: list[tuple[str, bytes]], hash_key: int | None = None) -> bytes:
    """Put records together as the Kinesis Producer Library does."""
    keys = sorted({key for key, _ in records})
    message = AggregatedRecord(partition_key_table=keys)
    if hash_key is not None:
        message.explicit_hash_key_table.append(str(hash_key))
    for key, data in records:
        part = message.records.add(partition_key_index=keys.index(key), data=data)
        if hash_key is not None:
            part.explicit_hash_key_index = 0
    content = message.SerializeToString()
    return b"\xf3\x89\x9a\xc2" + content + hashlib.md5(content, usedforsecurity=False).digest()
