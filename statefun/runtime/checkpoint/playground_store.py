# SPDX-License-Identifier: Apache-2.0
"""The playground's messages and records, in a database in the folder of the checkpoint.

A message is accepted when it is in the database, on the disk. A micro-batch reads it by its number, which
is part of Spark's offsets. The records of a committed batch are added together with the marker of their
lane's progress, and wait until a client takes them. Of each topic, the database keeps the newest records,
up to a limit; with as many messages, it accepts no further ones.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.sdk.errors import CheckpointError, ConfigurationError

logger = logging.getLogger("statefun")

PLAYGROUND_FILE = "playground.sqlite"
MOST_RECORDS = 100_000
"""The largest number of records of a topic that wait until a client takes them, and of messages that wait to be read."""
MOST_ACCEPTED_BYTES = 256 * 1024 * 1024
"""The largest total size, in bytes, of such records, and of such messages."""
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS posted (
    number INTEGER PRIMARY KEY, target BLOB NOT NULL, typename TEXT NOT NULL, value BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, payload BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS records_of_topics ON records (topic, number);
CREATE TABLE IF NOT EXISTS lanes (name TEXT PRIMARY KEY, marker TEXT NOT NULL);
"""
_COUNTS = "SELECT topic, count(*), sum(length(payload)) FROM records GROUP BY topic"
_POSTED = "SELECT count(*), coalesce(sum(length(value)), 0) FROM posted WHERE number <= ?"
_CHECK_SECONDS = 1.0
"""The time between two checks that a client still waits for a record."""
_ANSWER_SECONDS = 2.0
"""How long a database that is to be closed waits for clients that are reading records."""
_MOST_TYPED = 16
"""If at most this many messages wait, a person has probably typed them by hand; more come from a script."""
_READ_AT_ONCE = 10_000
"""The largest number of messages that a micro-batch reads."""
_BYTES_AT_ONCE = 8 * 1024 * 1024
"""The largest total size of the messages that a micro-batch reads, in bytes; a larger message is read alone."""


class Taken(NamedTuple):
    """A record that is being sent to a client of the playground, and is deleted once the client has it."""

    number: int
    topic: str
    payload: bytes


class _Waiting(NamedTuple):
    """How many messages, or records of a topic, wait, and their size."""

    records: int = 0
    size: int = 0
    """The total size in bytes."""

    @property
    def is_within(self) -> bool:
        """Whether number and size are within the limits; a single message or record may have any size."""
        return self.records <= MOST_RECORDS and (
            self.size <= MOST_ACCEPTED_BYTES or self.records == 1
        )

    def plus(self, records: int, size: int) -> _Waiting:
        """Return the sums with further records and bytes added; negative numbers take records and bytes away."""
        return _Waiting(self.records + records, self.size + size)


class PlaygroundStore:
    """The playground's database in one checkpoint; any thread of the driver may use it.

    Every method raises a CheckpointError if the database cannot be used.
    """

    def __init__(self, checkpoint: Folder, read: int = 0) -> None:
        """Open the database; create it if it does not exist.

        Args:
            checkpoint: the checkpoint that has the database.
            read: the number of the last message that micro-batches have read; new messages get higher numbers.

        Raises:
            ConfigurationError: if the checkpoint is not on a local disk.
            CheckpointError: if the database cannot be used.
        """
        if not checkpoint.is_local:
            raise ConfigurationError(
                f"the playground needs a checkpoint on a local disk, and {checkpoint.shown} "
                "is not on a local disk"
            )
        self._path = Path(checkpoint.location) / PLAYGROUND_FILE
        self._forgotten = 0
        self._when_opened: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._out: set[int] = set()
        """The numbers of records that are being sent to clients at present."""
        self._waiting: dict[str, _Waiting] = {}
        """The number and size of the records that wait for a client, by topic."""
        self._dropped: set[str] = set()
        """The topics whose oldest records were dropped; a warning is logged only once per topic."""
        self.is_closed = False
        """Whether the database is closed, or about to be."""
        try:
            self._database = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            self._database.executescript(_TABLES)
            self._newest = max(read, self._value("SELECT max(number) FROM posted") or 0)
            self._posted = self._posted_until(self._newest)
            """The number and size of the messages that wait to be read."""
            for topic, *counts in self._database.execute(_COUNTS):
                self._waiting[topic] = _Waiting(*counts)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def post(self, target: bytes, typename: str, value: bytes) -> bool:
        """Accept a message to a function; return whether it is on the disk: False if too many messages wait."""
        with self._lock:
            posted = self._posted.plus(1, len(value))
            if not posted.is_within:
                return False
            row = AcceptedMessage(self._newest + 1, target, typename, value)
            with self._transaction():
                self._database.execute("INSERT INTO posted VALUES (?, ?, ?, ?)", row)
            # Only now, as it is on the disk: no number may be missing.
            self._newest, self._posted = row.number, posted
            return True

    def when_opened(self, do: Callable[[], None]) -> None:
        """Call ``do`` once, when :meth:`open` is called."""
        self._when_opened = do

    def open(self) -> None:
        """Let clients in: the query has repeated the micro-batches of an earlier run, if it had to."""
        do, self._when_opened = self._when_opened, None
        if do is not None:
            do()

    def readable(self, after: int) -> int:
        """Return the number of the last message that the next micro-batch reads, within the limits of its size.

        Args:
            after: the number of the last message that earlier micro-batches have read; this number is
                returned if there are no newer messages.
        """
        with self._lock, self._named():
            if self._newest <= after:
                return after
            rows = self._database.execute(
                "SELECT number, length(value) FROM posted WHERE number > ? ORDER BY number LIMIT ?",
                (after, _READ_AT_ONCE),
            )
            last, size = after, 0
            for number, length in rows:
                size += length
                if last > after and size > _BYTES_AT_ONCE:
                    break
                last = number
            return last

    def typed(self, after: int, unfinished: frozenset[bytes] = frozenset()) -> int | None:
        """Return the last message that the next micro-batch reads if a person may have typed the waiting messages.

        The micro-batch then reads at most one message to each address, so that the person sees what each message does.

        Args:
            after: the number of the last message that earlier micro-batches have read.
            unfinished: the addresses to which the micro-batch reads no message.

        Returns:
            The number of the last message to read; None if so many messages wait that a script must have sent
            them.
        """
        with self._lock, self._named():
            if self._newest - after > _MOST_TYPED:
                return None
            rows = self._database.execute(
                "SELECT number, target FROM posted WHERE number > ? ORDER BY number", (after,)
            )
            last, targets = after, set(unfinished)
            for number, target in rows:
                if target in targets:
                    break
                targets.add(target)
                last = number
            return last

    def posted(self, after: int, last: int) -> list[AcceptedMessage]:
        """Return the messages with numbers from ``after + 1`` to ``last``, in order."""
        with self._lock, self._named():
            rows = self._database.execute(
                "SELECT * FROM posted WHERE number > ? AND number <= ? ORDER BY number",
                (after, last),
            )
            return [AcceptedMessage(*row) for row in rows]

    def forget(self, last: int) -> None:
        """Delete the messages up to number ``last``: the micro-batches that have read them are committed."""
        if last <= self._forgotten:
            return
        self._forgotten = last
        with self._lock:
            with self._transaction():
                count, size = self._posted_until(last)
                self._database.execute("DELETE FROM posted WHERE number <= ?", (last,))
            self._posted = self._posted.plus(-count, -size)

    def marker(self, lane: str) -> str | None:
        """Return the newest marker that :meth:`publish` has written for a lane; None if it has written none."""
        with self._lock, self._named():
            return self._marker(lane)

    def publish(
        self, lane: str, before: str | None, marker: str, records: Iterable[tuple[str, bytes]]
    ) -> bool:
        """Add records to the database in one transaction with the marker of their lane's progress.

        If a topic has too many records after that, its oldest records are dropped.

        Args:
            lane: the name of the lane.
            before: the marker that the lane has before these records.
            marker: the marker that the lane has with these records.
            records: the topic and payload of each record.

        Returns:
            Whether the records were added; False if the lane has another marker than ``before``, because
            another run has taken over the lane.
        """
        with self._came:
            counts = dict(self._waiting)
            with self._transaction():
                if self._marker(lane) != before:
                    return False
                for topic, payload in records:
                    self._database.execute(
                        "INSERT INTO records (topic, payload) VALUES (?, ?)", (topic, payload)
                    )
                    counts[topic] = counts.get(topic, _Waiting()).plus(1, len(payload))
                for topic, count in counts.items():
                    counts[topic] = self._shortened(topic, count)
                self._database.execute("INSERT OR REPLACE INTO lanes VALUES (?, ?)", (lane, marker))
            self._waiting = counts  # only now, as it is on the disk
            self._came.notify_all()
            return True

    def _shortened(self, topic: str, count: _Waiting) -> _Waiting:
        """Drop the oldest records of a topic until the remaining records are within the limits.

        Args:
            topic: the topic.
            count: the number and size of the topic's records.

        Returns:
            The number and size of the remaining records.
        """
        if count.is_within:
            return count
        sizes = self._database.execute(
            "SELECT number, length(payload) FROM records WHERE topic = ? ORDER BY number", (topic,)
        )
        last = 0
        for number, size in sizes:
            last, count = number, count.plus(-1, -size)
            if count.is_within:
                break
        self._database.execute("DELETE FROM records WHERE topic = ? AND number <= ?", (topic, last))
        if topic not in self._dropped:
            self._dropped.add(topic)
            logger.warning(
                "playground: no client takes the records of topic %s; the oldest records are dropped, so that "
                "at most %s records and %s bytes are kept",
                topic,
                f"{MOST_RECORDS:,}",
                f"{MOST_ACCEPTED_BYTES:,}",
            )
        return count

    def take(
        self, topic: str, seconds: float, check: Callable[[], None] = lambda: None
    ) -> Taken | None:
        """Return the next record of a topic; wait for it up to ``seconds``, and return None if none arrives.

        The record stays in the database until :meth:`taken` deletes it; after :meth:`put_back`, it is the next
        record of its topic again.

        Args:
            topic: the topic.
            seconds: how long to wait.
            check: raises an error if the client is gone; it is called each second, and before a record is taken.
        """
        deadline = time.monotonic() + seconds
        with self._came, self._named():
            while not self.is_closed:
                check()
                rows = self._database.execute(
                    "SELECT * FROM records WHERE topic = ? ORDER BY number LIMIT ?",
                    (topic, len(self._out) + 1),
                )
                for record in map(Taken._make, rows):
                    if record.number not in self._out:
                        self._out.add(record.number)
                        return record
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                self._came.wait(min(remaining, _CHECK_SECONDS))
            return None

    def taken(self, record: Taken) -> None:
        """Delete a record, since a client has received it."""
        with self._came:
            with self._transaction():
                deletion = self._database.execute(
                    "DELETE FROM records WHERE number = ?", (record.number,)
                )
            if deletion.rowcount:  # the record was not dropped meanwhile
                count = self._waiting[record.topic]
                self._waiting[record.topic] = count.plus(-1, -len(record.payload))
            self._out.discard(record.number)
            self._came.notify_all()

    def put_back(self, record: Taken) -> None:
        """Make available again a record that :meth:`take` has returned, since the client has not received it."""
        with self._came:
            self._out.discard(record.number)
            self._came.notify_all()

    def close(self) -> None:
        """Close the database; all calls of :meth:`take` that wait return None.

        Records that are being sent to clients are waited for, but not long: the next run sends those again that remain.
        """
        with self._came:
            self.is_closed = True
            self._came.notify_all()
            self._came.wait_for(lambda: not self._out, _ANSWER_SECONDS)
            self._database.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn SQLite's errors into errors that name the database."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._failed(error) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._named():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # SQLite may have rolled back already
                    self._database.execute("ROLLBACK")
                raise

    def _posted_until(self, last: int) -> _Waiting:
        """Return the number and size of the messages up to number ``last``."""
        return _Waiting(*self._database.execute(_POSTED, (last,)).fetchone())

    def _marker(self, lane: str) -> str | None:
        row = self._database.execute("SELECT marker FROM lanes WHERE name = ?", (lane,)).fetchone()
        return None if row is None else row[0]

    def _value(self, query: str, *parameters: object) -> int | None:
        row = self._database.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def _failed(self, error: sqlite3.Error) -> CheckpointError:
        return CheckpointError(f"the playground's database {self._path} cannot be used: {error}")


OPEN: dict[tuple[str, int], PlaygroundStore] = {}
"""The open databases of this process, by the host and port at which the playground serves them."""
