# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError
from harness import wait
from kinesis_server import aggregated
from patience import SECONDS

from statefun.kinesis.aggregation import HashRange, parts
from statefun.kinesis.connection import Connection
from statefun.kinesis.room import Room
from statefun.kinesis.shard_position import ShardPosition
from statefun.kinesis.shard_reader import ShardReader
from statefun.kinesis.shards import FetchedRecord, Shard

EVERYTHING = HashRange(0, 2**128 - 1)


def fetched(data: list[bytes]) -> list[FetchedRecord]:
    """Return records as the reader of a shard makes them."""
    return [
        FetchedRecord(
            str(10**55 + number),
            10**55 + number,
            datetime.now(timezone.utc),
            tuple(parts(f"key {number}", each, EVERYTHING)),
        )
        for number, each in enumerate(data)
    ]


@pytest.mark.parametrize(
    ("count", "size", "keys"), [(1000, 0, 1), (1000, 10, 1000), (1000, 100, 100), (1, 100, 1)]
)
def test_records_take_what_is_counted(count: int, size: int, keys: int) -> None:
    """So do aggregated records: the count limits the memory of the driver."""
    together = aggregated([(f"key {number % keys}", bytes(size)) for number in range(count)])
    data = [together if count > 1 else bytes([number]) * size for number in range(20)]
    fetched(data)  # what is made once is not counted
    tracemalloc.start()
    try:
        found = fetched(data)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert sum(len(each.parts) for each in found) == 20 * count
    assert held <= sum(each.size for each in found) <= 3 * held


MEBIBYTE = 1024 * 1024


class Shards:
    """A client of shards whose answers a test decides about."""

    def __init__(self, records_of: Callable[[str], list[dict[str, Any]]]) -> None:
        self._records_of = records_of

    def get_shard_iterator(self, ShardId: str, **_: object) -> dict[str, Any]:  # noqa: N803 - boto3's
        """Return the id of the shard, which is its iterator here."""
        return {"ShardIterator": ShardId}

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:  # noqa: N803 - boto3's
        """Return what the test decides about."""
        del Limit
        return {
            "Records": self._records_of(ShardIterator),
            "NextShardIterator": ShardIterator,
            "MillisBehindLatest": 0,
        }


class WatchedRoom(Room):
    """A room that knows which threads it was too small for."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self.refused: set[int] = set()

    def try_add(self, size: int) -> bool:
        """Note the thread if there is no room."""
        fits = super().try_add(size)
        if not fits:
            self.refused.add(threading.get_ident())
        return fits


def record(size: int) -> dict[str, Any]:
    """Return a record as boto3 returns it."""
    return {
        "SequenceNumber": "1",
        "ApproximateArrivalTimestamp": datetime.now(timezone.utc),
        "PartitionKey": "key",
        "Data": bytes(size),
    }


@contextmanager
def readers(
    records_of: Callable[[str], list[dict[str, Any]]], ids: list[str], room: Room
) -> Iterator[list[ShardReader]]:
    """Read shards until the ``with`` block ends."""
    client, connection = Shards(records_of), Connection("ingress test/in")
    found = [
        ShardReader(
            client, connection, Shard("users", id_, EVERYTHING), ShardPosition(), None, room
        )
        for id_ in ids
    ]
    try:
        yield found
    finally:
        for each in found:
            each.stop()


def test_answers_under_way_have_room_after_empty_ones() -> None:
    """Any number of shards that had no records may get some at once: each answer may be a large one."""
    asked = Counter[str]()
    is_burst, may_answer = threading.Event(), threading.Event()
    under_way: set[int] = set()

    def records_of(shard: str) -> list[dict[str, Any]]:
        asked[shard] += 1
        if not is_burst.is_set():
            return []
        under_way.add(threading.get_ident())
        may_answer.wait()
        return [record(4 * MEBIBYTE)]

    ids = [f"shardId-{number:012}" for number in range(12)]
    room = WatchedRoom(40 * MEBIBYTE)
    with readers(records_of, ids, room):
        try:
            wait(lambda: len(asked) == len(ids))
            is_burst.set()
            room.refused.clear()
            wait(lambda: len(room.refused | under_way) == len(ids))

            assert len(under_way) <= 2  # 10 MiB of data are up to 16 MiB of memory
        finally:
            may_answer.set()


def test_a_shard_with_large_answers_is_read_besides_others() -> None:
    """If each of its requests waited for room for its largest answer, smaller ones of others would take that first."""
    asked = 0

    def records_of(_: str) -> list[dict[str, Any]]:
        nonlocal asked
        asked += 1
        return [record(40 * MEBIBYTE)] if asked == 1 else []

    room = Room(48 * MEBIBYTE)
    with readers(records_of, ["shardId-0"], room) as (reader,):
        wait(lambda: reader.reachable(ShardPosition(), 1).count > 0)
        room.add(16 * MEBIBYTE)  # for the request of another reader
        reader.reachable(ShardPosition("1", 1), 1)  # the large answer is no longer needed
        wait(lambda: asked > 1)


def test_a_shard_that_is_throttled_leaves_its_room_to_others() -> None:
    """While a reader waits to repeat a request, no answer is under way."""
    throttled = threading.Event()

    def records_of(shard: str) -> list[dict[str, Any]]:
        if shard == "shardId-0":
            throttled.set()
            error = {"Code": "ProvisionedThroughputExceededException", "Message": "Rate exceeded"}
            raise ClientError({"Error": error}, "GetRecords")
        return [record(4)] if throttled.is_set() else []

    with readers(records_of, ["shardId-0", "shardId-1"], Room(16 * MEBIBYTE)) as (_, other):
        wait(lambda: other.reachable(ShardPosition(), 1).count > 0)


def test_planned_records_that_were_left_out_are_fetched_again() -> None:
    """A bounded run leaves out records after its bound, and a micro-batch that was planned earlier may need them."""
    is_bound = threading.Event()

    def records_of(_: str) -> list[dict[str, Any]]:
        is_bound.wait()
        return [record(4)]

    start = ShardPosition()
    with (
        ThreadPoolExecutor(1) as thread,
        readers(records_of, ["shardId-0"], Room(16 * MEBIBYTE)) as (reader,),
    ):
        reader.bound(datetime.now(timezone.utc) - timedelta(minutes=1))
        is_bound.set()
        wait(lambda: reader.caught_up)
        assert reader.reachable(start, 1) == start

        found = thread.submit(reader.between, start, ShardPosition("1"))
        assert [each.sequence for each in found.result(SECONDS)] == ["1"]
