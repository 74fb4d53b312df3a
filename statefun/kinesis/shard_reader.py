# SPDX-License-Identifier: Apache-2.0
"""Reads one shard ahead of the query, in a thread of the driver."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import deque
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from statefun.kinesis.aggregation import parts
from statefun.kinesis.aws_client import EXPIRED, Trouble, connector_error, trouble_of
from statefun.kinesis.connection import Connection
from statefun.kinesis.room import Room
from statefun.kinesis.shard_end import check_end
from statefun.kinesis.shard_plan import reach
from statefun.kinesis.shard_position import ShardPosition
from statefun.kinesis.shards import FetchedRecord, Shard
from statefun.sdk.errors import StatefunError

logger = logging.getLogger("statefun.ingress")

_LONGEST_SPACING = timedelta(seconds=2)
_RECOVERY = 0.98
"""Others read the stream, too: after a request that was too much, the next ones come less often."""
_MOST_RECORDS = 10_000
_FIRST_PAUSE = timedelta(milliseconds=200)
_LONGEST_PAUSE = timedelta(seconds=5)
_LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes that an answer may take; an answer has up to 10 MiB of data."""
_PATIENCE = timedelta(seconds=10)
"""Troubles that last longer are told of."""


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
        self._records: deque[FetchedRecord] = deque()
        self._needed = -1
        """The sequence number that is waited for, whatever the room."""
        self._until: datetime | None = None
        """Records that arrive later are left for another run."""
        self._complete: float = -1
        """Up to which sequence number everything is fetched that is still there."""
        self._expected = _LARGEST_ANSWER
        """How many bytes the next answer may take."""
        self._last_read: str | None = None
        """The record that the next answer begins with, if it is still there."""
        self._told = False
        self._spacing = 0.0
        """In seconds; what Kinesis asks for by throttling."""
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self.ended = False
        """Whether the shard is closed, and all its records are fetched."""
        self.caught_up = False
        """Whether all records were fetched that have arrived before the bound."""
        self._behind = timedelta(0)
        """How far the last answer was behind the newest record."""
        self._answered = time.monotonic()
        self._has_ended = False
        """Whether nothing more will come: the shard has ended, the run, or it has failed."""
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

    @property
    def _name(self) -> str:
        return f"shard {self.shard.id} of stream {self.shard.stream}"

    def reachable(self, start: ShardPosition, limit: int) -> ShardPosition:
        """Return the position after about ``limit`` fetched records from ``start`` on, or after fewer.

        Records up to ``start`` are dropped: their micro-batch is committed.
        """
        with self._changed:
            while self._records and self._records[0].number <= start.number:
                self._room.take(-self._records.popleft().size)
            return reach(self._records, start, limit, is_rest=self.ended)

    def between(self, start: ShardPosition, end: ShardPosition) -> list[FetchedRecord]:
        """Wait for the records between two positions, and return them.

        Raises:
            StatefunError: if they cannot be fetched.
        """
        with self._changed:
            self._needed = end.number
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._complete >= end.number or self._has_ended or self._stop.is_set()
            )
            if self.error is not None:
                raise self.error
            if self._stop.is_set() or self._complete < end.number:
                stopped = Trouble("the run is told to stop", passes=False)
                raise connector_error(self._connection, f"{self._name} is not read", stopped)
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

    def _run(self) -> None:
        error: StatefunError | None = None
        try:
            with self._room.reader():
                self._fetch_all()
        except StatefunError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - a silent end would be waited for
            error = connector_error(
                self._connection, f"{self._name} cannot be read", trouble_of(failure)
            )
        finally:
            with self._changed:
                self.error, self._has_ended = error, True
                self._changed.notify_all()

    def _fetch_all(self) -> None:
        """Fetch until the shard ends, or the run; whoever is bounded waits for what was planned."""
        iterator = None
        while not self._stop.is_set():
            expected = self._expected
            if not self._may_fetch(expected):
                with self._changed:
                    self._changed.wait(self._room.spacing.total_seconds() / 4)
                continue
            began = time.monotonic()
            try:
                iterator = self._fetch(iterator)
            finally:
                self._room.take(-expected)
            if self.ended:
                return
            spacing = max(self._spacing, self._room.spacing.total_seconds())
            self._stop.wait(max(0.0, began + spacing - time.monotonic()))

    def _fetch(self, iterator: str | None) -> str | None:
        """Ask once; return the next iterator, if there is one."""
        if iterator is None:
            place = self._request("get_shard_iterator", **self._where())
            if place is None:
                return None
            iterator = place["ShardIterator"]
        answer = self._request(
            "get_records", may_expire=True, ShardIterator=iterator, Limit=_MOST_RECORDS
        )
        if answer is None:
            return None
        records, following = answer["Records"], answer.get("NextShardIterator")
        self._behind = timedelta(milliseconds=answer["MillisBehindLatest"])
        self._answered = time.monotonic()
        is_all = not (len(records) == _MOST_RECORDS or self._behind)
        if not self._add(records, is_all=is_all):
            return None  # the rest is another run's
        if following is None:
            with self._changed:
                self.ended, self._complete = True, math.inf
        return following

    def _may_fetch(self, expected: int) -> bool:
        """Return whether to ask now, with room for so many bytes; what is planned needs no room."""
        with self._changed:
            if self._needed > max(self._complete, self._position.number):
                self._room.take(expected)
                return True
            return not self.caught_up and self._room.has_taken(expected)

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
        until, needed = self._until, self._needed
        wanted = records
        if until is not None:
            # Times of arrival are not in order: what follows a later one is left, too. But what an
            # earlier run has planned is read, whenever it came.
            wanted = list(
                takewhile(
                    lambda each: (
                        int(each["SequenceNumber"]) <= needed
                        or each["ApproximateArrivalTimestamp"] <= until
                    ),
                    records,
                )
            )
        are_taken = len(wanted) == len(records)
        # A closed shard is read to its end: those that follow it may have been there, too.
        is_done = not are_taken or (is_all and not self.shard.is_closed)
        found = [
            FetchedRecord(
                record["SequenceNumber"],
                int(record["SequenceNumber"]),
                record["ApproximateArrivalTimestamp"],
                tuple(parts(record["PartitionKey"], record["Data"], self.shard.hash_keys)),
            )
            for record in wanted
        ]
        size = sum(record.size for record in found)
        with self._changed:
            if found:
                self._records.extend(found)
                self._position = ShardPosition(found[-1].sequence)
                self._room.take(size)
            self._expected = size
            if not are_taken:
                self._complete = int(records[len(wanted)]["SequenceNumber"]) - 1
            else:
                self._complete = math.inf if is_all else self._position.number
            self.caught_up = self.caught_up or (until is not None and is_done)
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

    def _request(
        self, name: str, *, may_expire: bool = False, **parameters: Any
    ) -> dict[str, Any] | None:
        """Ask Kinesis, as often as it takes; None if told to stop, or if an iterator has expired.

        Raises:
            ConnectorError: if another attempt would be in vain.
        """
        pause, since = _FIRST_PAUSE.total_seconds(), time.monotonic()
        while True:
            try:
                answer: dict[str, Any] = getattr(self._client, name)(**parameters)
                if name == "get_records" and not self.shard.is_closed:
                    check_end(self._client, self.shard.stream, self.shard.id, answer)
            except Exception as error:
                trouble = trouble_of(error)
                if may_expire and trouble.code == EXPIRED:
                    return None
                if not trouble.passes:
                    raise connector_error(
                        self._connection, f"{self._name} cannot be read", trouble
                    ) from error
                if time.monotonic() - since > _PATIENCE.total_seconds() and not self._told:
                    self._told = True
                    self._tell(f"cannot be read ({trouble.text}); waiting")
                self._stop.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                if self._stop.is_set():
                    return None
                pause = min(pause * 2, _LONGEST_PAUSE.total_seconds())
                spacing = max(self._spacing, self._room.spacing.total_seconds())
                self._spacing = min(spacing * 2, _LONGEST_SPACING.total_seconds())
            else:
                self._spacing *= _RECOVERY
                if self._told:
                    self._told = False
                    self._tell("is read again")
                return answer

    def _tell(self, text: str) -> None:
        logger.warning("%s: %s %s", self._connection.owner, self._name, text)
