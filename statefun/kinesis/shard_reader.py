# SPDX-License-Identifier: Apache-2.0
"""Reads one shard ahead of the query, in a thread of the driver."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

import attrs

from statefun.kinesis.aggregation import HashRange, parts
from statefun.kinesis.aws_client import EXPIRED, Trouble, failed, trouble_of
from statefun.kinesis.connection import Connection
from statefun.kinesis.shard_position import ShardPosition
from statefun.sdk.errors import StatefunError

logger = logging.getLogger("statefun.ingress")

_SPACING = timedelta(milliseconds=200)
"""Between two requests for a shard: Kinesis takes five a second."""
_LONGEST_SPACING = timedelta(seconds=2)
_RECOVERY = 0.98
"""Others read the stream, too: after a request that was too much, the next ones come less often."""
_MOST_RECORDS = 10_000
_FIRST_PAUSE = timedelta(milliseconds=200)
_LONGEST_PAUSE = timedelta(seconds=5)
_OBJECTS = 500
"""About how many bytes a record takes besides its data."""
_PATIENCE = timedelta(seconds=10)
"""Troubles that last longer are told of."""


@attrs.frozen
class Shard:
    """A shard of a stream."""

    stream: str
    id: str
    hash_keys: HashRange
    parents: tuple[str, ...] = ()
    """The shards that it was made of by a split or a merge."""
    is_closed: bool = False
    """Whether nothing more will come, and others have followed it."""

    @property
    def partition(self) -> int:
        """The number in its id.

        >>> Shard("users", "shardId-000000000012", HashRange(0, 1)).partition
        12
        """
        return int(self.id.rpartition("-")[2])


@attrs.frozen
class Fetched:
    """A record of Kinesis; several records of users', if its producer has put them together."""

    sequence: str
    number: int
    """The sequence number, to compare with."""
    arrival: datetime
    parts: tuple[tuple[str, bytes], ...]
    """Keys and values."""
    size: int


class Room:
    """Limits what all readers together hold ahead of the query."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._used = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Count bytes that are held; negative ones that no longer are."""
        with self._lock:
            self._used += size

    @property
    def is_full(self) -> bool:
        """Whether to fetch no more."""
        return self._used >= self._most


class ShardReader:
    """Fetches the records of a shard from a position on.

    Args:
        client: boto3's client.
        connection: whose it is, for messages.
        shard: the shard.
        position: where to begin.
        begin: the time of the first record to read, if the position names none.
        room: limits what is held.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one fact about where to read
        self,
        client: Any,
        connection: Connection,
        shard: Shard,
        position: ShardPosition,
        begin: datetime | None,
        room: Room,
    ) -> None:
        self.shard = shard
        self._client = client
        self._connection = connection
        self._position = position
        """Where the next request begins."""
        self._begin = begin
        self._room = room
        self._records: deque[Fetched] = deque()
        self._needed = -1
        """The sequence number that is waited for, whatever the room."""
        self._until: datetime | None = None
        """Records that arrive later are left for another run."""
        self._is_at_tip = False
        """Whether the last answer had all that there was."""
        self._last_read: str | None = None
        """The record that the next answer begins with, if it is still there."""
        self._told = False
        self._spacing = _SPACING.total_seconds()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self.ended = False
        """Whether the shard is closed, and all its records are fetched."""
        self.caught_up = False
        """Whether all records were fetched that have arrived before the bound."""
        self._behind = timedelta(0)
        """How far the last answer was behind the newest record."""
        self._answered = time.monotonic()
        self.error: StatefunError | None = None
        """Why nothing more will come."""
        self._thread = threading.Thread(
            target=self._run, name=f"statefun-{shard.stream}-{shard.id}", daemon=True
        )
        self._thread.start()

    @property
    def behind(self) -> timedelta:
        """How far behind the newest record it fetches; without an answer it falls behind."""
        silence = timedelta(seconds=time.monotonic() - self._answered)
        if self.ended:
            return timedelta(0)
        return self._behind + silence if silence > _PATIENCE else self._behind

    def reachable(self, start: ShardPosition, most: int) -> ShardPosition:
        """Return how far one can read from ``start``: about so many records."""
        with self._changed:
            while self._records and self._records[0].number <= start.number:
                self._room.take(-self._records.popleft().size)
            last, count = None, start.count
            for record in self._records:
                if count - start.count >= most:
                    break
                last, count = record, count + len(record.parts)
            is_all = last is None or last is self._records[-1]
            return ShardPosition(
                start.after if last is None else last.sequence,
                count,
                self.ended and is_all and (bool(last) or not self._records),
            )

    def between(self, start: ShardPosition, end: ShardPosition) -> list[Fetched]:
        """Wait for the records between two positions, and return them.

        Raises:
            StatefunError: if they cannot be fetched.
        """
        with self._changed:
            self._needed, self._is_at_tip = end.number, False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._has(end) or self._is_over() or self._stop.is_set())
            if self.error is not None:
                raise self.error
            if self._stop.is_set():
                stopped = Trouble("the run is told to stop", passes=False)
                raise failed(self._connection, f"shard {self.shard.id} is not read", stopped)
            ahead = takewhile(lambda record: record.number <= end.number, self._records)
            return [record for record in ahead if record.number > start.number]

    def bound(self, until: datetime) -> None:
        """Take no records that have arrived later."""
        with self._changed:
            self._until, self.caught_up = until, False

    def stop(self) -> None:
        """End soon. The records stay: without them an ended shard would look as if it were read."""
        with self._changed:
            self._stop.set()
            self._changed.notify_all()
            self._room.take(-sum(record.size for record in self._records))

    def _is_over(self) -> bool:
        """Tell whether what is needed will not come: it is gone."""
        return self.ended or self._is_at_tip or self.error is not None

    def _has(self, end: ShardPosition) -> bool:
        newest = self._records[-1].number if self._records else self._position.number
        return newest >= end.number

    def _run(self) -> None:
        try:
            self._fetch_all()
        except StatefunError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - a silent end would be waited for
            self._end(failed(self._connection, f"shard {self.shard.id}", trouble_of(error)))

    def _end(self, error: StatefunError | None = None) -> None:
        with self._changed:
            self.error, self.ended = error, error is None
            self._changed.notify_all()

    def _fetch_all(self) -> None:
        iterator = None
        while not self._stop.is_set():
            if not self._may_fetch():
                self._stop.wait(_SPACING.total_seconds() / 4)
                continue
            began = time.monotonic()
            if iterator is None:
                iterator = self._request("get_shard_iterator", **self._where()).get("ShardIterator")
                if iterator is None:  # told to stop
                    return
            answer = self._request(
                "get_records", may_expire=True, ShardIterator=iterator, Limit=_MOST_RECORDS
            )
            iterator = answer.get("NextShardIterator")
            if "Records" in answer:  # else the iterator has expired
                found = answer["Records"]
                is_full = len(found) == _MOST_RECORDS
                self._behind = timedelta(milliseconds=answer.get("MillisBehindLatest") or 0)
                self._answered = time.monotonic()
                is_all = not (is_full or self._behind)
                if not self._add(found, is_all=is_all):
                    return  # the rest is another run's
                if iterator is None:
                    self._end()
                    return
            self._stop.wait(max(0.0, began + self._spacing - time.monotonic()))

    def _may_fetch(self) -> bool:
        with self._changed:
            if self._needed > self._position.number:
                return True
            return not self.caught_up and not self._room.is_full

    def _where(self) -> dict[str, Any]:
        where: dict[str, Any] = {"StreamName": self.shard.stream, "ShardId": self.shard.id}
        self._last_read = self._position.after
        if self._last_read is not None:
            # With the last record once more: an iterator behind one whose time is over would begin at
            # whatever is left, without a word.
            return where | {
                "ShardIteratorType": "AT_SEQUENCE_NUMBER",
                "StartingSequenceNumber": self._last_read,
            }
        if self._begin is not None:
            return where | {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self._begin}
        return where | {"ShardIteratorType": "TRIM_HORIZON"}

    def _add(self, records: list[dict[str, Any]], *, is_all: bool) -> bool:
        """Take the records of an answer, up to the bound; return whether that were all of them.

        Args:
            records: the records.
            is_all: whether there were no more in the shard.
        """
        records = self._without_last(records, is_all=is_all)
        until, is_done, are_taken = self._until, False, True
        if until is not None:
            # Times of arrival are not in order: what follows a later one is left, too.
            wanted = list(
                takewhile(lambda each: each["ApproximateArrivalTimestamp"] <= until, records)
            )
            are_taken = len(wanted) == len(records)
            # A closed shard is read to its end: those that follow it may have been there, too.
            is_done = not are_taken or (is_all and not self.shard.is_closed)
            records = wanted
        found = [
            Fetched(
                record["SequenceNumber"],
                int(record["SequenceNumber"]),
                record["ApproximateArrivalTimestamp"],
                tuple(parts(record["PartitionKey"], record["Data"], self.shard.hash_keys)),
                len(record["Data"]) + _OBJECTS,
            )
            for record in records
        ]
        with self._changed:
            if found:
                self._records.extend(found)
                self._position = ShardPosition(found[-1].sequence)
                self._room.take(sum(record.size for record in found))
            self._is_at_tip = is_all
            self.caught_up = self.caught_up or is_done
            self._changed.notify_all()
        return are_taken

    def _without_last(self, records: list[dict[str, Any]], *, is_all: bool) -> list[dict[str, Any]]:
        """Return records without the one that was read before; tell if it is no longer there."""
        last = self._last_read
        if last is None or not (records or is_all):
            return records
        self._last_read = None
        if records and records[0]["SequenceNumber"] == last:
            return records[1:]
        self._tell(
            f"no longer has record {last}, which was read last: records behind it may be gone, too, "
            "as their time of retention is over"
        )
        return records

    def _request(self, name: str, *, may_expire: bool = False, **parameters: Any) -> dict[str, Any]:
        """Ask Kinesis, as often as it takes; return nothing if told to stop, or an iterator has expired.

        Raises:
            ConnectorError: if another attempt would be in vain.
        """
        pause, since = _FIRST_PAUSE.total_seconds(), time.monotonic()
        while True:
            try:
                answer: dict[str, Any] = getattr(self._client, name)(**parameters)
            except Exception as error:
                trouble = trouble_of(error)
                if may_expire and trouble.code == EXPIRED:
                    return {}
                if not trouble.passes:
                    what = f"shard {self.shard.id} of stream {self.shard.stream} cannot be read"
                    raise failed(self._connection, what, trouble) from error
                if time.monotonic() - since > _PATIENCE.total_seconds() and not self._told:
                    self._told = True
                    self._tell(f"cannot be read ({trouble.text}); waiting")
                self._stop.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                if self._stop.is_set():
                    return {}
                pause = min(pause * 2, _LONGEST_PAUSE.total_seconds())
                self._spacing = min(self._spacing * 2, _LONGEST_SPACING.total_seconds())
            else:
                shortest = _SPACING.total_seconds()
                self._spacing = max(shortest, self._spacing * _RECOVERY)
                if self._told:
                    self._told = False
                    self._tell("is read again")
                return answer

    def _tell(self, text: str) -> None:
        place = f"shard {self.shard.id} of stream {self.shard.stream}"
        logger.warning("%s: %s %s", self._connection.owner, place, text)
