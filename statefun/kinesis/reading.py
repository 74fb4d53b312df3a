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
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
from pyspark.sql import DataFrame

from statefun.components.running import (
    Folder,
    Offset,
    Reading,
    read_framed,
    write_framed,
)
from statefun.kinesis.aws_client import Trouble, connect, failed
from statefun.kinesis.checking import check_date, check_streams, not_listed
from statefun.kinesis.connection import Connection, FromEnd, IngressSettings, OnDataLoss
from statefun.kinesis.room import Room
from statefun.kinesis.shard_list import ShardList
from statefun.kinesis.shard_position import (
    ShardPosition,
    StreamPosition,
    decoded,
    encoded,
)
from statefun.kinesis.shard_reader import Fetched, Shard, ShardReader
from statefun.kinesis.shard_tasks import read_task, tasks_of

logger = logging.getLogger("statefun.ingress")

BEGIN = "begin.json"
_ROOM = 128 * 1024 * 1024
"""The bytes that are fetched ahead of the query."""
_LIST_AGAIN = timedelta(seconds=1)
_LOOK = 0.05
_MILLISECOND = timedelta(milliseconds=1)


def read_kinesis(reading: Reading) -> DataFrame:
    """Return the records of an ingress.

    Raises:
        ConfigurationError: if boto3 is not installed, or the connection's settings cannot be used.
        ConnectorError: if a stream is not there, or cannot be reached in time.
    """
    settings: IngressSettings = reading.ingress.settings
    streams = [route.topic for route in reading.ingress.topics]
    source = KinesisSource(
        settings,
        streams,
        reading.folder,
        reading.records_per_batch,
        is_fresh=reading.is_fresh,
    )
    source.check(reading.timeout)
    return reading.planned(source, read_task)


class KinesisSource:
    """Decides what each micro-batch reads of some streams.

    Args:
        settings: how to reach them, and where to begin on a fresh checkpoint.
        streams: their names.
        folder: of the checkpoint, where the beginning is kept: Spark asks for it until a
            micro-batch is committed.
        records_per_batch: about how many records a micro-batch takes at most.
        is_fresh: whether no micro-batch was planned yet.
    """

    def __init__(
        self,
        settings: IngressSettings,
        streams: Sequence[str],
        folder: Folder,
        records_per_batch: int,
        *,
        is_fresh: bool,
    ) -> None:
        self._settings = settings
        self._connection: Connection = settings.connection
        self._begin = settings.start
        self._on_data_loss = settings.on_data_loss
        self._is_fresh = is_fresh
        self._streams = streams
        self._folder = folder
        self._most = records_per_batch
        self._client: Any = connect(self._connection)
        self._room = Room(_ROOM)
        self._shards = ShardList(self._client, streams)
        self._list_at = 0.0
        self._has_told = False
        self._readers: dict[tuple[str, str], ShardReader] = {}
        self._until: datetime | None = None
        """What arrives later is left for another run."""
        self._is_stopped = threading.Event()
        self._opening = threading.Lock()
        """Held while a reader is made: whoever stops the source stops all of them."""

    def check(self, timeout: timedelta) -> None:
        """List the shards of all streams.

        Raises:
            ConfigurationError: if the startup position is still to come.
            ConnectorError: if a stream is not there, or Kinesis does not answer in time.
        """
        check_date(self._settings)
        check_streams(self._connection, self._shards, timeout)

    def initial_offset(self) -> Offset:
        """Return where a fresh checkpoint begins: the same at each start until it has read."""
        declared = str(self._begin)
        try:
            noted = json.loads(read_framed(self._folder, BEGIN))
        except FileNotFoundError:
            noted = None
        # What is declared may change as long as nothing is planned.
        if noted is None or (self._is_fresh and noted["declared"] != declared):
            noted = {"declared": declared, "begin": self._resolved()}
            write_framed(self._folder, BEGIN, json.dumps(noted).encode())
        begin = noted["begin"]
        streams = {name: StreamPosition(begin, {}) for name in self._streams}
        return encoded({name: self._followed(name, streams[name]) for name in self._streams})

    def latest_offset(self, start: Offset) -> Offset:
        """Return how far all shards can be read from ``start``."""
        before = decoded(start)
        while True:
            self._raise_errors()
            is_done = self._until is None or self._is_done(before)  # before anything more comes
            after = before | self._reachable(before)
            if self._is_stopped.is_set():
                return start
            if after != before:
                return encoded(after)
            if is_done or self._is_stopped.wait(_LOOK):
                return start

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Fetch what lies between two offsets, if it is not there yet, and divide it."""
        before, after = decoded(start), decoded(end)
        found: list[bytes] = []
        for name, stream in after.items():
            for id_, position in stream.shards.items():
                first = ShardPosition()
                if name in before:
                    first = before[name].shards.get(id_, first)
                if position.number > first.number and self._is_there(name, id_):
                    reader = self._reader(name, id_, first, stream)
                    records = reader.between(first, position)
                    self._check_count(reader.shard, records, first, position)
                    found += tasks_of(reader.shard, records, first.count)
        return found

    def bound(self) -> None:
        """Read no further than what is there now."""
        self._until = datetime.fromtimestamp(self._shards.latest, timezone.utc)
        for reader in self._readers.values():
            reader.bound(self._until)

    def stop(self) -> None:
        """Stop fetching; whoever waits waits no longer."""
        with self._opening:
            self._is_stopped.set()
            for reader in self._readers.values():
                reader.stop()

    def metrics(self) -> Mapping[str, int]:
        """Return by how many milliseconds the shards of each stream are fetched behind their ends.

        Of each stream it is the shard that is furthest behind.
        """
        behind = dict.fromkeys(self._streams, timedelta(0))
        for (name, _), reader in list(self._readers.items()):
            behind[name] = max(behind.get(name, reader.behind), reader.behind)
        return {
            f"stream.{name}.millisBehindLatest": far // _MILLISECOND for name, far in behind.items()
        }

    def _resolved(self) -> float | None:
        """Return the time of the first record to read, in seconds since the epoch."""
        if self._begin is FromEnd.EARLIEST:
            return None
        begin = self._begin.timestamp() if isinstance(self._begin, datetime) else self._shards.now
        return math.floor(begin * 1000) / 1000  # Kinesis counts in milliseconds

    def _reachable(self, before: Mapping[str, StreamPosition]) -> dict[str, StreamPosition]:
        """Return how far the streams can be read: each shard has a share, and some have what is left."""
        begin = next((each.begin for each in before.values()), None)  # of streams that were added
        found = {
            name: self._followed(name, before.get(name, StreamPosition(begin, {})))
            for name in self._streams
        }
        for name, stream in found.items():
            for id_, position in stream.shards.items():
                if not position.ended and id_ not in self._shards.of(name):
                    self._lose(f"shard {id_} of stream {name} is gone, and was not read to its end")
                    stream.shards[id_] = attrs.evolve(position, ended=True)
        readers = {
            (name, id_): (self._reader(name, id_, position, stream), position)
            for name, stream in found.items()
            for id_, position in stream.shards.items()
            if not position.ended
        }
        left, share = self._most, max(1, self._most // max(1, len(readers)))
        positions: dict[tuple[str, str], ShardPosition] = {}
        for place, (reader, position) in readers.items():
            positions[place] = reader.reachable(position, share)
            left -= positions[place].count - position.count
        for place, (reader, position) in readers.items():
            taken = positions[place].count - position.count
            if left > 0 and taken >= share:
                positions[place] = reader.reachable(position, taken + left)
                left -= positions[place].count - position.count - taken
        for (name, id_), position in positions.items():
            found[name].shards[id_] = position
        return found

    def _followed(self, name: str, stream: StreamPosition) -> StreamPosition:
        """Return the position with the shards that follow those that have ended.

        A shard is begun when its parents are read to their ends, in an earlier micro-batch: so the
        records of a key keep their order.
        """
        has_ended = any(position.ended for position in stream.shards.values())
        if stream.shards and not has_ended:
            return attrs.evolve(stream, shards=dict(stream.shards))
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
        forgotten = sum(
            position.count for id_, position in stream.shards.items() if id_ not in kept
        )
        return attrs.evolve(
            stream, shards={**kept, **ready}, forgotten=stream.forgotten + forgotten
        )

    def _listed(self, name: str, stream: StreamPosition) -> dict[str, Shard]:
        """Return the shards of a stream; they are listed anew if an ended one has no successor."""
        ended = {id_ for id_, position in stream.shards.items() if position.ended}
        if ended - self._shards.parents(name) and time.monotonic() >= self._list_at:
            self._list_at = time.monotonic() + _LIST_AGAIN.total_seconds()
            trouble = self._shards.look()
            if trouble is not None and not trouble.passes:
                raise not_listed(self._connection, trouble)
            if trouble is not None and not self._has_told:
                owner = self._connection.owner
                logger.warning("%s: its streams cannot be listed: %s; waiting", owner, trouble.text)
            self._has_told = trouble is not None
        return self._shards.of(name)

    def _reader(
        self, name: str, id_: str, position: ShardPosition, stream: StreamPosition
    ) -> ShardReader:
        """Return the reader of a shard, which begins at ``position`` if it is a new one."""
        with self._opening:
            reader = self._readers.get((name, id_))
            if reader is None:
                reader = self._readers[name, id_] = self._opened(name, id_, position, stream)
            return reader

    def _opened(
        self, name: str, id_: str, position: ShardPosition, stream: StreamPosition
    ) -> ShardReader:
        if name not in self._streams:
            raise failed(
                self._connection,
                f"the checkpoint has planned to read stream {name}, which the ingress lists no more",
                Trouble("list it for one more start", passes=False),
            )
        shard = self._shards.of(name)[id_]
        reader = ShardReader(
            self._client, self._connection, shard, position, stream.begin_date, self._room
        )
        if self._until is not None:
            reader.bound(self._until)
        if self._is_stopped.is_set():
            reader.stop()
        return reader

    def _is_done(self, streams: Mapping[str, StreamPosition]) -> bool:
        """Return whether everything is read that was there when the run was bounded."""
        return all(name in streams and self._is_read(name, streams[name]) for name in self._streams)

    def _is_read(self, name: str, stream: StreamPosition) -> bool:
        listed, parents = self._shards.of(name), self._shards.parents(name)
        for id_, position in stream.shards.items():
            reader = self._readers.get((name, id_))
            if position.ended:  # and what follows it is known
                is_read = id_ in parents or id_ not in listed
            else:
                is_read = reader is not None and (reader.caught_up or reader.ended)
            if not is_read:
                return False
        return True

    def _is_there(self, name: str, id_: str) -> bool:
        """Return whether a shard is there that is planned to be read.

        Raises:
            ConnectorError: if it is not, and that is to end the run.
        """
        if name in self._streams and id_ not in self._shards.of(name):
            self._lose(f"shard {id_} of stream {name} is gone, and was not read to its end")
            return False
        return True

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
            self._lose(what)

    def _lose(self, what: str) -> None:
        """End the run for records that are gone, or go on as the ingress says.

        Raises:
            ConnectorError: if the run is to end.
        """
        over = "the time of retention is over"
        if self._on_data_loss is OnDataLoss.GO_ON:
            logger.warning("%s: %s: %s; going on", self._connection.owner, what, over)
            return
        advice = (
            f"{over}; set onDataLoss: go-on to go on without them, or start with a new checkpoint"
        )
        raise failed(self._connection, what, Trouble(advice, passes=False))
