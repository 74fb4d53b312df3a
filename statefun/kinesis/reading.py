# SPDX-License-Identifier: Apache-2.0
"""Streams as records for functions: the driver fetches them, and tasks get them as they are.

Kinesis does not tell where a shard ends without handing out its records, and hands them out at two
megabytes a second and shard to all readers together. So whoever plans a micro-batch reads what is in
it. After a crash the same records are fetched once more, by their sequence numbers.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame

from statefun.components.running import (
    RECORDS_ARROW,
    Folder,
    Offset,
    Reading,
    read_framed,
    write_framed,
)
from statefun.kinesis.aggregation import HashRange
from statefun.kinesis.aws_client import Trouble, connect, failed, trouble_of
from statefun.kinesis.connection import Connection, FromEnd, IngressSettings
from statefun.kinesis.shard_position import (
    ShardPosition,
    StreamPosition,
    decoded,
    encoded,
)
from statefun.kinesis.shard_reader import Fetched, Room, Shard, ShardReader

logger = logging.getLogger("statefun.ingress")

SEQUENCE_NUMBER = "kinesis.sequenceNumber"
"""The header with a record's sequence number."""
BEGIN = "begin.json"
_ROOM = 128 * 1024 * 1024
"""The bytes that are fetched ahead of the query."""
_TASK_RECORDS = 20_000
_TASK_BYTES = 8 * 1024 * 1024
_LIST_AGAIN = timedelta(seconds=1)
_LOOK = 0.05
_NOT_THERE = "ResourceNotFoundException"


def read_kinesis(reading: Reading) -> DataFrame:
    """Return the records of an ingress.

    Raises:
        ConfigurationError: if boto3 is not installed, or the connection's settings cannot be used.
        ConnectorError: if a stream is not there, or cannot be reached in time.
    """
    settings: IngressSettings = reading.ingress.settings
    streams = [route.topic for route in reading.ingress.topics]
    source = KinesisSource(settings, streams, reading.folder, reading.records_per_batch)
    source.check(reading.timeout)
    return reading.planned(source, read_task)


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Return the records in a task."""
    yield from pa.ipc.open_stream(task)


class KinesisSource:
    """Decides what each micro-batch reads of some streams.

    Args:
        settings: how to reach them, and where to begin on a fresh checkpoint.
        streams: their names.
        folder: of the checkpoint, where the beginning is kept: Spark asks for it until a
            micro-batch is committed.
        records_per_batch: about how many records a micro-batch takes at most.
    """

    def __init__(
        self,
        settings: IngressSettings,
        streams: Sequence[str],
        folder: Folder,
        records_per_batch: int,
    ) -> None:
        self._connection: Connection = settings.connection
        self._begin = settings.start
        self._streams = streams
        self._folder = folder
        self._most = records_per_batch
        self._client: Any = connect(self._connection)
        self._room = Room(_ROOM)
        self._shards: dict[str, dict[str, Shard]] = {}
        """The listed shards by stream and id."""
        self._list_at = 0.0
        self._readers: dict[tuple[str, str], ShardReader] = {}
        self._is_bounded = False

    def check(self, timeout: timedelta) -> None:
        """List the shards of all streams.

        Raises:
            ConnectorError: if a stream is not there, or Kinesis does not answer in time.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while trouble := self._list():
            if not trouble.passes or time.monotonic() > deadline:
                raise failed(self._connection, "its streams cannot be listed", trouble)
            time.sleep(_LOOK)

    def initial_offset(self) -> Offset:
        """Return where a fresh checkpoint begins: the same at each start until it has read."""
        try:
            begin = json.loads(read_framed(self._folder, BEGIN))
        except FileNotFoundError:
            begin = self._resolved()
            write_framed(self._folder, BEGIN, json.dumps(begin).encode())
        streams = {name: StreamPosition(begin, {}) for name in self._streams}
        return encoded({name: self._followed(name, streams[name]) for name in self._streams})

    def latest_offset(self, start: Offset) -> Offset:
        """Return how far all shards can be read from ``start``."""
        before = decoded(start)
        while True:
            self._raise_errors()
            after = before | {name: self._reachable(name, before) for name in self._streams}
            if after != before or not self._is_bounded or self._is_done(before):
                return start if after == before else encoded(after)
            time.sleep(_LOOK)

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Fetch what lies between two offsets, if it is not there yet, and divide it."""
        before, after = decoded(start), decoded(end)
        found: list[bytes] = []
        for name, stream in after.items():
            for id_, position in stream.shards.items():
                first = ShardPosition()
                if name in before:
                    first = before[name].shards.get(id_, first)
                if position.number > first.number:
                    reader = self._reader(name, id_, first, stream)
                    records = reader.between(first, position)
                    self._check_count(reader.shard, records, first, position)
                    found += _tasks(reader.shard, records, first.count)
        return found

    def bound(self) -> None:
        """Read no further than what is there now."""
        self._is_bounded = True
        for reader in self._readers.values():
            reader.bound()

    def stop(self) -> None:
        """Stop fetching."""
        for reader in self._readers.values():
            reader.stop()
        self._readers.clear()

    def _resolved(self) -> float | None:
        """Return the time of the first record to read, in seconds since the epoch."""
        if self._begin is FromEnd.EARLIEST:
            return None
        begin = self._begin.timestamp() if isinstance(self._begin, datetime) else self._now
        return math.floor(begin * 1000) / 1000  # Kinesis counts in milliseconds

    def _reachable(self, name: str, before: Mapping[str, StreamPosition]) -> StreamPosition:
        """Return how far a stream can be read."""
        start = before.get(name)
        if start is None:  # it was added to the ingress
            begin = next((each.begin for each in before.values()), None)
            start = StreamPosition(begin, {})
        start = self._followed(name, start)
        open_ = {id_: each for id_, each in start.shards.items() if not each.ended}
        share = max(1, self._most // max(1, len(open_) * len(self._streams)))
        shards = dict(start.shards)
        for id_, position in open_.items():
            reader = self._reader(name, id_, position, start)
            shards[id_] = reader.reachable(position, share)
        return attrs.evolve(start, shards=shards)

    def _followed(self, name: str, stream: StreamPosition) -> StreamPosition:
        """Return the position with the shards that follow those that have ended.

        A shard is begun when its parents are read to their ends, in an earlier micro-batch: so the
        records of a key keep their order.
        """
        has_ended = any(position.ended for position in stream.shards.values())
        if stream.shards and not has_ended:
            return stream
        for (owner, id_), reader in list(self._readers.items()):
            if owner == name and id_ in stream.shards and stream.shards[id_].ended:
                reader.stop()
                del self._readers[owner, id_]
        listed = self._listed(name, stream)
        ready = {
            shard.id: ShardPosition()
            for shard in listed.values()
            if shard.id not in stream.shards
            and all(
                stream.shards[parent].ended if parent in stream.shards else parent not in listed
                for parent in shard.parents
            )
        }
        kept = {
            id_: position
            for id_, position in stream.shards.items()
            if not position.ended or id_ in listed
        }
        return attrs.evolve(stream, shards={**kept, **ready})

    def _listed(self, name: str, stream: StreamPosition) -> dict[str, Shard]:
        """Return the shards of a stream; they are listed anew if an ended one has no successor."""
        shards = self._shards.get(name, {})
        parents = {parent for shard in shards.values() for parent in shard.parents}
        ended = {id_ for id_, position in stream.shards.items() if position.ended}
        if ended - parents and time.monotonic() >= self._list_at:
            self._list_at = time.monotonic() + _LIST_AGAIN.total_seconds()
            trouble = self._list()
            if trouble is not None and not trouble.passes:
                raise failed(self._connection, "its streams cannot be listed", trouble)
        return self._shards.get(name, {})

    def _reader(
        self, name: str, id_: str, position: ShardPosition, stream: StreamPosition
    ) -> ShardReader:
        """Return the reader of a shard, which begins at ``position`` if it is a new one."""
        reader = self._readers.get((name, id_))
        if reader is None:
            if name not in self._shards:
                raise failed(
                    self._connection,
                    f"the checkpoint has planned to read stream {name}, which the ingress lists no "
                    "more",
                    Trouble("list it for one more start", passes=False),
                )
            shard = self._shards[name].get(id_)
            if shard is None:
                trouble = Trouble("its time of retention is over", passes=False)
                what = f"shard {id_} of stream {name} is gone, and was not read to its end"
                raise failed(self._connection, what, trouble)
            reader = ShardReader(
                self._client, self._connection, shard, position, stream.begin_date, self._room
            )
            if self._is_bounded:
                reader.bound()
            self._readers[name, id_] = reader
        return reader

    def _list(self) -> Trouble | None:
        """List the shards of all streams; return why they cannot be listed."""
        for name in self._streams:
            try:
                self._shards[name] = self._shards_of(name)
            except Exception as error:  # noqa: BLE001 - boto3 makes the classes of its errors
                trouble = trouble_of(error)
                if trouble.code == _NOT_THERE:
                    text = f"there is no stream {name}; create it, or correct its name"
                    return attrs.evolve(trouble, text=text)
                return trouble
        return None

    def _shards_of(self, name: str) -> dict[str, Shard]:
        found: dict[str, Shard] = {}
        asked: dict[str, Any] = {"StreamName": name}
        while True:
            answer = self._client.list_shards(**asked)
            self._now = _server_time(answer)
            for shard in answer["Shards"]:
                keys = shard["HashKeyRange"]
                found[shard["ShardId"]] = Shard(
                    name,
                    shard["ShardId"],
                    HashRange(int(keys["StartingHashKey"]), int(keys["EndingHashKey"])),
                    tuple(
                        shard[parent]
                        for parent in ("ParentShardId", "AdjacentParentShardId")
                        if shard.get(parent)
                    ),
                )
            if not answer.get("NextToken"):
                return found
            asked = {"NextToken": answer["NextToken"]}

    def _is_done(self, streams: Mapping[str, StreamPosition]) -> bool:
        """Tell whether everything is read that was there when the run was bounded."""
        return all(
            position.ended or ((name, id_) in self._readers and self._readers[name, id_].caught_up)
            for name, stream in streams.items()
            for id_, position in stream.shards.items()
        )

    def _raise_errors(self) -> None:
        for reader in self._readers.values():
            if reader.error is not None:
                raise reader.error

    def _check_count(
        self, shard: Shard, records: Sequence[Fetched], start: ShardPosition, end: ShardPosition
    ) -> None:
        """Check that the records are those that the micro-batch was planned with.

        Raises:
            ConnectorError: if some are gone.
        """
        found, planned = sum(len(record.parts) for record in records), end.count - start.count
        if found != planned:
            what = (
                f"{planned - found} of {planned} records of shard {shard.id} of stream "
                f"{shard.stream} are gone behind sequence number {start.after}"
            )
            trouble = Trouble("their time of retention is over", passes=False)
            raise failed(self._connection, what, trouble)


def _server_time(answer: Mapping[str, Any]) -> float:
    """Return the time of a server, in seconds since the epoch: ours where both agree on the second.

    Kinesis refuses to read from a time that is still to come by its own clock.
    """
    now = datetime.now(timezone.utc)
    headers = answer["ResponseMetadata"].get("HTTPHeaders", {})
    try:
        theirs = parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError):
        return now.timestamp()
    agrees = timedelta(0) <= now - theirs < timedelta(seconds=1)
    return (now if agrees else theirs).timestamp()


def _tasks(shard: Shard, records: Sequence[Fetched], first: int) -> Iterator[bytes]:
    """Yield tasks with the records, which are numbered from ``first`` on."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for record in records:
        header = [{"key": SEQUENCE_NUMBER, "value": record.sequence.encode()}]
        for key, value in record.parts:
            offset = first + len(rows)
            place = (shard.stream, shard.partition, offset, record.arrival)
            rows.append((key.encode(), value, *place, header))
        size += record.size
        if len(rows) >= _TASK_RECORDS or size >= _TASK_BYTES:
            yield _task(rows)
            first, rows, size = first + len(rows), [], 0
    if rows:
        yield _task(rows)


def _task(rows: Sequence[tuple[Any, ...]]) -> bytes:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, RECORDS_ARROW, strict=True)
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORDS_ARROW) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=RECORDS_ARROW))
    return bytes(sink.getvalue())
