# SPDX-License-Identifier: Apache-2.0
"""Fetches the records of one shard ahead of the query, in a thread of the driver."""

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
from statefun.kinesis.aws_client import EXPIRED, RequestFailure, connector_error, trouble_of
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
"""By which factor each success after throttling shortens the time between two requests.

It is close to 1 because other applications that read the stream share its limits.
"""
_MOST_RECORDS = 10_000
_FIRST_PAUSE = timedelta(milliseconds=200)
_LONGEST_PAUSE = timedelta(seconds=5)
_LARGEST_ANSWER = 16 * 1024 * 1024
"""How many bytes of memory a large answer takes; Kinesis answers with up to 10 MiB of data."""
_MOST_RESERVED = 2 * _LARGEST_ANSWER
"""The largest number of bytes that are reserved for an answer."""
_PATIENCE = timedelta(seconds=10)
"""How long requests may fail before a warning is logged."""


class ShardReader:
    """A thread that fetches the records of a shard, from a position on, and holds them for the query.

    Args:
        client: the boto3 client.
        connection: the connection of the ingress, which error and log texts name.
        shard: the shard.
        position: the position before the first record to fetch.
        begin: if no record of the shard was read yet, the time of the first record to fetch.
        room: limits the memory that all readers of the ingress use.
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
        """The position up to which records are fetched; the next request begins there."""
        self._begin = begin
        self._room = room
        self._records: deque[FetchedRecord] = deque()
        self._needed = -1
        """The last sequence number that a planned micro-batch needs.

        Records up to it are fetched even if their memory exceeds the limit.
        """
        self._until: datetime | None = None
        """In a bounded run, the time up to which records are read; records that arrive later are not read."""
        self._complete: float = -1
        """All records up to this sequence number are fetched, as far as Kinesis still has them."""
        self._expected = _LARGEST_ANSWER
        """An estimate of the memory that the next answer takes at most, in bytes."""
        self._reserved = 0
        """How many bytes of memory are reserved for the answer to the present request."""
        self._last_read: str | None = None
        """The last read record, by its sequence number: the next answer begins with this record.

        None if the next answer begins with a new record.
        """
        self._has_logged_trouble = False
        """Whether the log has a warning that the shard cannot be read."""
        self._spacing = 0.0
        """How many seconds to wait between two requests because Kinesis has throttled earlier ones."""
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self.ended = False
        """Whether the shard is closed, and all its records are fetched."""
        self.caught_up = False
        """In a bounded run, whether all records that arrived before the bound of the run are fetched."""
        self._behind = timedelta(0)
        """The lag of the last answer behind the newest record of the shard."""
        self._answered = time.monotonic()
        self._has_ended = False
        """Whether the thread has ended, because the shard or the run has ended or a request has failed."""
        self.error: StatefunError | None = None
        """The error that has ended this reader; None if it works or has ended without an error."""
        self._thread = threading.Thread(
            target=self._run, name=f"statefun-{shard.stream}-{shard.id}", daemon=True
        )
        self._thread.start()

    @property
    def behind(self) -> timedelta:
        """The lag of the fetched records behind the newest record of the shard.

        While Kinesis does not answer, the lag grows with the time.
        """
        silence = timedelta(seconds=time.monotonic() - self._answered)
        if self.ended:
            return timedelta(0)
        return self._behind + silence if silence > _PATIENCE else self._behind

    @property
    def _name(self) -> str:
        return f"shard {self.shard.id} of stream {self.shard.stream}"

    def reachable(self, start: ShardPosition, limit: int) -> ShardPosition:
        """Return where a micro-batch from ``start`` on ends: after about ``limit`` records, or all fetched ones.

        The reader drops its records before ``start``, because the micro-batch that has read them is committed.
        """
        with self._changed:
            while self._records and self._records[0].number <= start.number:
                self._room.add(-self._records.popleft().size)
            return reach(self._records, start, limit, is_rest=self.ended)

    def between(self, start: ShardPosition, end: ShardPosition) -> list[FetchedRecord]:
        """Return the records between two positions; wait until they are fetched.

        Raises:
            StatefunError: if the records cannot be fetched, or the reader is stopped before they are.
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
                stopped = RequestFailure("the run was asked to stop", is_temporary=False)
                raise connector_error(
                    self._connection,
                    f"not all planned records of {self._name} were fetched",
                    stopped,
                )
            up_to_end = takewhile(lambda record: record.number <= end.number, self._records)
            return [record for record in up_to_end if record.number > start.number]

    def bound(self, until: datetime) -> None:
        """Read only records that have arrived by ``until``, as the run is bounded."""
        with self._changed:
            self._until, self.caught_up = until, False

    def stop(self) -> None:
        """Stop fetching. The reader keeps its records: without them, an ended shard would count as read."""
        with self._changed:
            self._stop.set()
            self._changed.notify_all()
            self._room.add(-sum(record.size for record in self._records))

    def _run(self) -> None:
        error: StatefunError | None = None
        try:
            with self._room.reader():
                self._fetch_all()
        except StatefunError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - callers wait for records or an error
            error = connector_error(
                self._connection, f"{self._name} cannot be read", trouble_of(failure)
            )
        finally:
            with self._changed:
                self.error, self._has_ended = error, True
                self._changed.notify_all()

    def _fetch_all(self) -> None:
        """Fetch records until the shard or the run ends.

        Once a bounded run has all records up to its bound, the reader fetches only records that a planned
        micro-batch needs.
        """
        iterator = None
        while self._reserve():
            began = time.monotonic()
            try:
                iterator = self._fetch(iterator)
            finally:
                self._release()
            if self.ended:
                return
            spacing = max(self._spacing, self._room.spacing.total_seconds())
            self._stop.wait(max(0.0, began + spacing - time.monotonic()))

    def _fetch(self, iterator: str | None) -> str | None:
        """Fetch one answer with records; return the iterator for the next one.

        None means that the next request needs a new iterator.
        """
        if iterator is None:
            place = self._request("get_shard_iterator", **self._begin_parameters())
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
            return None  # the rest is left for another run
        if following is None:
            with self._changed:
                self.ended, self._complete = True, math.inf
        return following

    def _reserve(self) -> bool:
        """Wait until a request may be sent, and reserve memory for its answer.

        Records that a planned micro-batch needs are fetched even if their memory exceeds the limit.

        Returns:
            False if the reader was stopped instead.
        """
        while not self._stop.is_set():
            with self._changed:
                if self._needed > max(self._complete, self._position.number):
                    self._room.add(self._expected)
                elif self.caught_up or not self._room.try_add(self._expected):
                    self._changed.wait(self._room.spacing.total_seconds() / 4)
                    continue
                self._reserved = self._expected
                return True
        return False

    def _release(self) -> None:
        """Free the memory that is reserved for an answer."""
        self._room.add(-self._reserved)
        self._reserved = 0

    def _begin_parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {"StreamName": self.shard.stream, "ShardId": self.shard.id}
        self._last_read = self._position.after
        if self._last_read is not None:
            # From the last read record on, which is fetched again: AFTER_SEQUENCE_NUMBER of an expired
            # record would begin at the oldest record, without an error.
            return parameters | {
                "ShardIteratorType": "AT_SEQUENCE_NUMBER",
                "StartingSequenceNumber": self._last_read,
            }
        if self._begin is not None:
            return parameters | {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self._begin}
        return parameters | {"ShardIteratorType": "TRIM_HORIZON"}

    def _add(self, records: list[dict[str, Any]], *, is_all: bool) -> bool:
        """Add the records of an answer, up to the bound of a bounded run; return whether all of them were added.

        Args:
            records: the records of the answer.
            is_all: whether the shard had no records after these ones when Kinesis answered.
        """
        records = self._without_last_read(records, is_all=is_all)
        until, needed = self._until, self._needed
        wanted_records = records
        if until is not None:
            # Times of arrival are not in order: all records after the first one that arrived after the
            # bound are left out. Records that an earlier run has planned are read in any case.
            wanted_records = list(
                takewhile(
                    lambda each: (
                        int(each["SequenceNumber"]) <= needed
                        or each["ApproximateArrivalTimestamp"] <= until
                    ),
                    records,
                )
            )
        is_complete = len(wanted_records) == len(records)
        # A closed shard is read to its end: shards that replace it may have records before the bound.
        is_done = not is_complete or (is_all and not self.shard.is_closed)
        fetched_records = [
            FetchedRecord(
                record["SequenceNumber"],
                int(record["SequenceNumber"]),
                record["ApproximateArrivalTimestamp"],
                tuple(parts(record["PartitionKey"], record["Data"], self.shard.hash_keys)),
            )
            for record in wanted_records
        ]
        size = sum(record.size for record in fetched_records)
        with self._changed:
            if fetched_records:
                self._records.extend(fetched_records)
                self._position = ShardPosition(fetched_records[-1].sequence)
                self._room.add(size)
            # Not less after a small answer: any number of shards may get records at the same time. More after a
            # larger answer, as aggregated records take many times the memory of their data; but not so much that the
            # requests of other shards leave no room for this one's.
            self._expected = min(max(_LARGEST_ANSWER, size), _MOST_RESERVED)
            if not is_complete:
                self._complete = int(records[len(wanted_records)]["SequenceNumber"]) - 1
            else:
                self._complete = math.inf if is_all else self._position.number
            self.caught_up = self.caught_up or (until is not None and is_done)
            self._changed.notify_all()
        return is_complete

    def _without_last_read(
        self, records: list[dict[str, Any]], *, is_all: bool
    ) -> list[dict[str, Any]]:
        """Return the records of an answer; leave out the first one if an earlier answer ended with it.

        A new iterator begins at the last read record. Log a warning if Kinesis no longer has that record.
        """
        last = self._last_read
        if last is None or not (records or is_all):
            return records
        self._last_read = None
        if records and records[0]["SequenceNumber"] == last:
            return records[1:]
        self._log(
            f"no longer has record {last}, the last one that was read, as its retention period has "
            "ended: unread records after it may be lost, too"
        )
        return records

    def _request(
        self, name: str, *, may_expire: bool = False, **parameters: Any
    ) -> dict[str, Any] | None:
        """Repeat a request until it succeeds; return its answer.

        None is returned if the reader was stopped, or if the iterator in the request has expired.

        Raises:
            ConnectorError: if the request fails, and the reason is not temporary.
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
                if not trouble.is_temporary:
                    raise connector_error(
                        self._connection, f"{self._name} cannot be read", trouble
                    ) from error
                if (
                    time.monotonic() - since > _PATIENCE.total_seconds()
                    and not self._has_logged_trouble
                ):
                    self._has_logged_trouble = True
                    self._log(f"cannot be read ({trouble.text}); trying again until it can")
                self._release()  # requests for other shards do not wait for this one
                self._stop.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                if not self._reserve():
                    return None
                pause = min(pause * 2, _LONGEST_PAUSE.total_seconds())
                spacing = max(self._spacing, self._room.spacing.total_seconds())
                self._spacing = min(spacing * 2, _LONGEST_SPACING.total_seconds())
            else:
                self._spacing *= _RECOVERY
                if self._has_logged_trouble:
                    self._has_logged_trouble = False
                    self._log("is read again")
                return answer

    def _log(self, text: str) -> None:
        logger.warning("%s: %s %s", self._connection.owner, self._name, text)
