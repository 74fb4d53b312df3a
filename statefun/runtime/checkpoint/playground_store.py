# SPDX-License-Identifier: Apache-2.0
"""What the playground has accepted and published, in a database within the checkpoint.

A message is accepted when it is here, on the disk. It enters a micro-batch by its number, which is
part of Spark's offsets. Records of committed batches come here, together with the marker of their
lane's progress, and wait until somebody takes them: of each topic the newest, up to a limit.
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
"""How many records of a topic wait until somebody takes them."""
MOST_ACCEPTED_BYTES = 256 * 1024 * 1024
"""How large they may be together."""
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
_MOST_TYPED = 16
"""How many messages wait at most where somebody types them."""
_READ_AT_ONCE = 10_000
_BYTES_AT_ONCE = 8 * 1024 * 1024


class Taken(NamedTuple):
    """A record that somebody takes."""

    number: int
    topic: str
    payload: bytes


class _Waiting(NamedTuple):
    """The records of a topic that wait."""

    records: int = 0
    size: int = 0
    """In bytes."""

    @property
    def is_within(self) -> bool:
        """Whether there may be so many."""
        return self.records <= MOST_RECORDS and (
            self.size <= MOST_ACCEPTED_BYTES or self.records == 1
        )

    def plus(self, records: int, size: int) -> _Waiting:
        """Return it with others."""
        return _Waiting(self.records + records, self.size + size)


class PlaygroundStore:
    """The database of one checkpoint; any thread of the driver may use it.

    Every method raises a CheckpointError if the database cannot be used.
    """

    def __init__(self, checkpoint: Folder, read: int = 0) -> None:
        """Open the database, and create it if it is not there.

        Args:
            checkpoint: the checkpoint.
            read: the last message that was read so far; later ones get higher numbers.

        Raises:
            ConfigurationError: if the checkpoint is not on a local disk.
            CheckpointError: if the database cannot be used.
        """
        if not checkpoint.is_local:
            raise ConfigurationError(
                f"the playground needs a checkpoint on a local disk, which {checkpoint.shown} "
                "is not"
            )
        self._path = Path(checkpoint.location) / PLAYGROUND_FILE
        self._forgotten = 0
        self._when_read: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self._out: set[int] = set()
        """The records that are being taken."""
        self._waiting: dict[str, _Waiting] = {}
        """By topic."""
        self._dropped: set[str] = set()
        """The topics of which it was said that records are dropped."""
        self.is_closed = False
        """Whether it was closed, and cannot be used any more."""
        try:
            self._database = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            self._database.executescript(_TABLES)
            self._newest = max(read, self._value("SELECT max(number) FROM posted") or 0)
            for topic, *counts in self._database.execute(_COUNTS):
                self._waiting[topic] = _Waiting(*counts)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def post(self, target: bytes, typename: str, value: bytes) -> None:
        """Accept a message; it is on the disk when this returns."""
        with self._lock:
            row = AcceptedMessage(self._newest + 1, target, typename, value)
            with self._transaction():
                self._database.execute("INSERT INTO posted VALUES (?, ?, ?, ?)", row)
            self._newest = row.number  # not before it is on the disk: a number is never left out

    def when_read(self, do: Callable[[], None]) -> None:
        """Call something once: when the query looks for messages, after all that it has to repeat."""
        self._when_read = do

    def readable(self, after: int) -> int:
        """Return up to which message a micro-batch reads from ``after`` on."""
        do, self._when_read = self._when_read, None
        if do is not None:
            do()
        with self._lock, self._named():
            if self._newest <= after:
                return after
            found = self._database.execute(
                "SELECT number, length(value) FROM posted WHERE number > ? ORDER BY number LIMIT ?",
                (after, _READ_AT_ONCE),
            )
            last, size = after, 0
            for number, length in found:
                size += length
                if last > after and size > _BYTES_AT_ONCE:
                    break
                last = number
            return last

    def typed(self, after: int) -> int | None:
        """Return up to which message to read as somebody types them; None if so many wait.

        No two of them are for one address.
        """
        with self._lock, self._named():
            if self._newest - after > _MOST_TYPED:
                return None
            found = self._database.execute(
                "SELECT number, target FROM posted WHERE number > ? ORDER BY number", (after,)
            )
            last, targets = after, set()
            for number, target in found:
                if target in targets:
                    break
                targets.add(target)
                last = number
            return last

    def posted(self, after: int, last: int) -> list[AcceptedMessage]:
        """Return the messages behind ``after``, up to ``last``."""
        with self._lock, self._named():
            found = self._database.execute(
                "SELECT * FROM posted WHERE number > ? AND number <= ? ORDER BY number",
                (after, last),
            )
            return [AcceptedMessage(*row) for row in found]

    def forget(self, last: int) -> None:
        """Delete the messages up to ``last``, whose batches are committed."""
        if last <= self._forgotten:
            return
        self._forgotten = last
        with self._lock, self._transaction():
            self._database.execute("DELETE FROM posted WHERE number <= ?", (last,))

    def marker(self, lane: str) -> str | None:
        """Return what :meth:`publish` has written last of a lane."""
        with self._lock, self._named():
            return self._marker(lane)

    def publish(
        self, lane: str, before: str | None, marker: str, records: Iterable[tuple[str, bytes]]
    ) -> bool:
        """Add records, together with the marker of their lane's progress: both or neither.

        Of a topic with too many of them, the oldest are dropped.

        Args:
            lane: the name of the lane.
            before: its progress so far.
            marker: its progress from now on.
            records: their topics and payloads.

        Returns:
            Whether they were added: if its progress was another one, somebody else has taken over.
        """
        with self._came:
            waiting = dict(self._waiting)
            with self._transaction():
                if self._marker(lane) != before:
                    return False
                for topic, payload in records:
                    self._database.execute(
                        "INSERT INTO records (topic, payload) VALUES (?, ?)", (topic, payload)
                    )
                    waiting[topic] = waiting.get(topic, _Waiting()).plus(1, len(payload))
                for topic, found in waiting.items():
                    waiting[topic] = self._shortened(topic, found)
                self._database.execute("INSERT OR REPLACE INTO lanes VALUES (?, ?)", (lane, marker))
            self._waiting = waiting  # not before it is on the disk
            self._came.notify_all()
            return True

    def _shortened(self, topic: str, waiting: _Waiting) -> _Waiting:
        """Drop the oldest records of a topic until it has no more than it may have."""
        if waiting.is_within:
            return waiting
        found = self._database.execute(
            "SELECT number, length(payload) FROM records WHERE topic = ? ORDER BY number", (topic,)
        )
        last = 0
        for number, size in found:
            last, waiting = number, waiting.plus(-1, -size)
            if waiting.is_within:
                break
        self._database.execute("DELETE FROM records WHERE topic = ? AND number <= ?", (topic, last))
        if topic not in self._dropped:
            self._dropped.add(topic)
            logger.warning(
                "playground: nobody takes the records of topic %s: of more than %s, or %s bytes, the "
                "oldest are dropped",
                topic,
                f"{MOST_RECORDS:,}",
                f"{MOST_ACCEPTED_BYTES:,}",
            )
        return waiting

    def take(self, topic: str, seconds: float) -> Taken | None:
        """Wait for the next record of a topic; None if there is none in time.

        It stays until :meth:`taken` is called; with :meth:`put_back` it is the next again.
        """
        deadline = time.monotonic() + seconds
        with self._came, self._named():
            while not self.is_closed:
                found = self._database.execute(
                    "SELECT * FROM records WHERE topic = ? ORDER BY number LIMIT ?",
                    (topic, len(self._out) + 1),
                )
                for record in map(Taken._make, found):
                    if record.number not in self._out:
                        self._out.add(record.number)
                        return record
                if not self._came.wait(deadline - time.monotonic()):
                    break
            return None

    def taken(self, record: Taken) -> None:
        """Forget a record that has arrived."""
        with self._lock:
            with self._transaction():
                done = self._database.execute(
                    "DELETE FROM records WHERE number = ?", (record.number,)
                )
            if done.rowcount:  # it was not dropped meanwhile
                waiting = self._waiting[record.topic]
                self._waiting[record.topic] = waiting.plus(-1, -len(record.payload))
            self._out.discard(record.number)

    def put_back(self, record: Taken) -> None:
        """Keep a record that has not arrived."""
        with self._came:
            self._out.discard(record.number)
            self._came.notify_all()

    def close(self) -> None:
        """Let nobody wait any more, and close the database."""
        with self._came:
            self.is_closed = True
            self._database.close()
            self._came.notify_all()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the database in errors."""
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
                if self._database.in_transaction:  # SQLite may have rolled it back
                    self._database.execute("ROLLBACK")
                raise

    def _marker(self, lane: str) -> str | None:
        found = self._database.execute(
            "SELECT marker FROM lanes WHERE name = ?", (lane,)
        ).fetchone()
        return None if found is None else found[0]

    def _value(self, query: str, *parameters: object) -> int | None:
        row = self._database.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def _failed(self, error: sqlite3.Error) -> CheckpointError:
        return CheckpointError(f"the playground's database {self._path} cannot be used: {error}")


OPEN: dict[tuple[str, int], PlaygroundStore] = {}
"""The stores of this process, by the address and port where they are served."""
