# SPDX-License-Identifier: Apache-2.0
"""Streams as records for functions: the driver fetches the records and sends them to tasks.

Kinesis reports where a shard ends only together with the shard's records, and limits all readers of a
shard together to two megabytes a second. So the driver, which plans micro-batches, also fetches their
records. After a crash it fetches the same records again, by their sequence numbers.
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

from pyspark.sql import DataFrame

from statefun.components.running import (
    Folder,
    Offset,
    Reading,
    read_framed,
    write_framed,
)
from statefun.kinesis.aws_client import Trouble, connect, connector_error
from statefun.kinesis.checking import check_date, check_streams, unlisted_streams_error
from statefun.kinesis.connection import Connection, FromEnd, IngressSettings, OnDataLoss
from statefun.kinesis.room import Room
from statefun.kinesis.shard_list import ShardList
from statefun.kinesis.shard_plan import (
    ShardKey,
    ShardRange,
    ended_shards,
    is_all_read,
    needs_new_list,
    plan_shards,
    planned_ranges,
    share_records,
    with_next_shards,
)
from statefun.kinesis.shard_position import (
    ShardPosition,
    StreamPosition,
    decode_offset,
    encode_offset,
)
from statefun.kinesis.shard_reader import ShardReader
from statefun.kinesis.shard_tasks import read_task, tasks_of
from statefun.kinesis.shards import FetchedRecord, Shard

logger = logging.getLogger("statefun.ingress")

BEGIN = "begin.json"
"""The file of the checkpoint that keeps where a fresh checkpoint begins."""
_ROOM = 128 * 1024 * 1024
"""How much memory fetched records may take before the query reads them, in bytes."""
_LIST_AGAIN = timedelta(seconds=1)
_LOOK = 0.05
_MILLISECOND = timedelta(milliseconds=1)


def read_kinesis(reading: Reading) -> DataFrame:
    """Return the records of an ingress.

    Raises:
        ConfigurationError: if boto3 is not installed, or the connection's settings cannot be used.
        ConnectorError: if a stream does not exist, or cannot be reached in time.
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
        settings: the connection, and where to begin on a fresh checkpoint.
        streams: the names of the streams.
        folder: a folder of the checkpoint, which keeps the beginning: Spark asks for it until a
            micro-batch is committed.
        records_per_batch: about how many records a micro-batch has at most.
        is_fresh: whether the checkpoint has no planned micro-batch yet.
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
        self._records_per_batch = records_per_batch
        self._client: Any = connect(self._connection)
        self._room = Room(_ROOM)
        self._shards = ShardList(self._client, streams)
        self._list_at = 0.0
        """The earliest time of the next request for the list of shards, by the monotonic clock."""
        self._has_logged_trouble = False
        """Whether the log has a warning that the shards cannot be listed."""
        self._readers: dict[ShardKey, ShardReader] = {}
        self._until: datetime | None = None
        """The bound of a bounded run: records that arrive later are left for another run."""
        self._is_stopped = threading.Event()
        self._opening = threading.Lock()
        """Held while a reader is made, so that :meth:`stop` stops all readers."""

    def check(self, timeout: timedelta) -> None:
        """List the shards of all streams.

        Raises:
            ConfigurationError: if the date of the startup position is in the future.
            ConnectorError: if a stream does not exist, or Kinesis does not answer in time.
        """
        check_date(self._settings)
        check_streams(self._connection, self._shards, timeout)

    def initial_offset(self) -> Offset:
        """Return where a fresh checkpoint begins: the same offset until a micro-batch is planned."""
        declared = str(self._begin)
        try:
            stored = json.loads(read_framed(self._folder, BEGIN))
        except FileNotFoundError:
            stored = None
        # The declared startup position may change as long as no micro-batch is planned.
        if stored is None or (self._is_fresh and stored["declared"] != declared):
            stored = {"declared": declared, "begin": self._resolved_begin()}
            write_framed(self._folder, BEGIN, json.dumps(stored).encode())
        stream = StreamPosition(stored["begin"], {})
        return encode_offset(
            {name: with_next_shards(stream, self._shards.of(name)) for name in self._streams}
        )

    def latest_offset(self, start: Offset) -> Offset:
        """Return how far all shards can be read from ``start``."""
        before = decode_offset(start)
        while True:
            self._raise_errors()
            # Asked first: records that readers fetch meanwhile are in the positions afterwards.
            is_done = self._until is None or self._is_done(before)
            after = before | self._reachable(before)
            if self._is_stopped.is_set():
                return start
            if after != before:
                return encode_offset(after)
            if is_done or self._is_stopped.wait(_LOOK):
                return start

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Return tasks with the records between two offsets; fetch records that are not there yet."""
        after = decode_offset(end)
        tasks: list[bytes] = []
        for range_ in planned_ranges(decode_offset(start), after):
            if self._is_there(range_):
                key = range_.name, range_.id
                reader = self._reader(key, range_.start, after[range_.name])
                records = reader.between(range_.start, range_.end)
                self._check_count(reader.shard, records, range_)
                tasks += tasks_of(reader.shard, records, range_.start.count)
        return tasks

    def bound(self) -> None:
        """Read only the records that have arrived by now."""
        self._until = datetime.fromtimestamp(self._shards.latest, timezone.utc)
        for reader in self._readers.values():
            reader.bound(self._until)

    def stop(self) -> None:
        """Stop fetching: calls that wait for records return or fail at once."""
        with self._opening:
            self._is_stopped.set()
            for reader in self._readers.values():
                reader.stop()

    def metrics(self) -> Mapping[str, int]:
        """Return how far reading is behind the newest record of each stream, in milliseconds.

        The figure of a stream is that of the shard that is furthest behind.
        """
        lags = dict.fromkeys(self._streams, timedelta(0))
        for (name, _), reader in list(self._readers.items()):
            lags[name] = max(lags.get(name, reader.behind), reader.behind)
        return {
            f"stream.{name}.millisBehindLatest": lag // _MILLISECOND for name, lag in lags.items()
        }

    def _resolved_begin(self) -> float | None:
        """Return the time of the first record to read, in seconds since the epoch."""
        if self._begin is FromEnd.EARLIEST:
            return None
        begin = self._begin.timestamp() if isinstance(self._begin, datetime) else self._shards.now
        return math.floor(begin * 1000) / 1000  # Kinesis counts in milliseconds

    def _reachable(self, before: Mapping[str, StreamPosition]) -> dict[str, StreamPosition]:
        """Return how far the streams of the ingress can be read from ``before``."""
        for key in ended_shards(self._streams, before):
            if (reader := self._readers.pop(key, None)) is not None:
                reader.stop()
        if needs_new_list(self._streams, before, self._shards.by_stream):
            self._list_again()
        plan = plan_shards(self._streams, before, self._shards.by_stream)
        for name, id_ in plan.lost_shards:
            self._report_lost_shard(name, id_)
        positions = plan.open_shards
        readers = {
            (name, id_): self._reader((name, id_), position, plan.streams[name])
            for (name, id_), position in positions.items()
        }
        return plan.ending_at(share_records(positions, readers, self._records_per_batch))

    def _list_again(self) -> None:
        """List the shards of all streams, unless the last attempt is too recent.

        Raises:
            ConnectorError: if the streams cannot be listed, and another attempt would be in vain.
        """
        if time.monotonic() < self._list_at:
            return
        self._list_at = time.monotonic() + _LIST_AGAIN.total_seconds()
        trouble = self._shards.look()
        if trouble is not None and not trouble.passes:
            raise unlisted_streams_error(self._connection, trouble)
        if trouble is not None and not self._has_logged_trouble:
            owner = self._connection.owner
            logger.warning("%s: its streams cannot be listed: %s; waiting", owner, trouble.text)
        self._has_logged_trouble = trouble is not None

    def _reader(
        self, key: ShardKey, position: ShardPosition, stream: StreamPosition
    ) -> ShardReader:
        """Return the reader of a shard; a new reader begins at ``position``."""
        with self._opening:
            reader = self._readers.get(key)
            if reader is None:
                reader = self._readers[key] = self._new_reader(key, position, stream)
            return reader

    def _new_reader(
        self, key: ShardKey, position: ShardPosition, stream: StreamPosition
    ) -> ShardReader:
        name, id_ = key
        if name not in self._streams:
            raise connector_error(
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

    def _is_done(self, before: Mapping[str, StreamPosition]) -> bool:
        """Return whether all records are read that had arrived when the run was bounded."""
        exhausted = {
            key for key, reader in self._readers.items() if reader.caught_up or reader.ended
        }
        return is_all_read(self._streams, before, self._shards.by_stream, exhausted)

    def _is_there(self, range_: ShardRange) -> bool:
        """Return whether Kinesis still lists the shard of a planned range.

        Raises:
            ConnectorError: if it does not, and the ingress does not go on without lost records.
        """
        if range_.name in self._streams and range_.id not in self._shards.of(range_.name):
            self._report_lost_shard(range_.name, range_.id)
            return False
        return True

    def _raise_errors(self) -> None:
        for reader in self._readers.values():
            if reader.error is not None:
                raise reader.error

    def _check_count(
        self, shard: Shard, records: Sequence[FetchedRecord], range_: ShardRange
    ) -> None:
        """Check that as many records were fetched as the micro-batch was planned with.

        Raises:
            ConnectorError: if some are missing, and the ingress does not go on without them.
        """
        count = sum(len(record.parts) for record in records)
        planned_count = range_.end.count - range_.start.count
        if count != planned_count:
            self._report_loss(
                f"{planned_count - count} of {planned_count} records of shard {shard.id} of stream "
                f"{shard.stream} are gone after sequence number {range_.start.after}"
            )

    def _report_lost_shard(self, name: str, id_: str) -> None:
        self._report_loss(f"shard {id_} of stream {name} is gone, and was not read to its end")

    def _report_loss(self, what: str) -> None:
        """End the run because records are lost, or log a warning, as ``onDataLoss`` says.

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
        raise connector_error(self._connection, what, Trouble(advice, passes=False))
