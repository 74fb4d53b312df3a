# SPDX-License-Identifier: Apache-2.0
"""The Spark source of a Kinesis ingress: the driver fetches records and sends them to tasks.

Kinesis reports where a shard ends only together with the shard's records, and limits all readers of a
shard together to two megabytes a second. So the driver, which plans micro-batches, also fetches their
records. After a crash it fetches the records of a planned micro-batch again, by their sequence numbers.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
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
from statefun.kinesis.aws_client import RequestFailure, connect, connector_error
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
    read_anew,
    reopened_shards,
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
from statefun.sdk.times import in_milliseconds

logger = logging.getLogger("statefun.ingress")

BEGIN = "begin.json"
"""The file of the checkpoint that stores where reading began when the checkpoint was fresh."""
_ROOM = 128 * 1024 * 1024
"""How many bytes of memory fetched records may take until the query reads them."""
_LIST_AGAIN = timedelta(seconds=1)
_BELIEVED_AFTER = timedelta(seconds=10)
"""For how long lists must show a shard as open that was read to its end: the first ones may be old."""
_LOOK = 0.05


def read_kinesis(reading: Reading) -> DataFrame:
    """Return a streaming DataFrame with the records of a Kinesis ingress.

    Raises:
        ConfigurationError: if boto3 is not installed, or does not accept the settings.
        ConnectorError: if a stream does not exist, or Kinesis does not answer in time.
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
    """Decides which records of the streams of an ingress each micro-batch reads.

    Args:
        settings: the connection, and where reading begins if the checkpoint is fresh.
        streams: the names of the streams.
        folder: a folder of the checkpoint, which stores where reading has begun: Spark asks for the
            initial offset again until a micro-batch is committed.
        records_per_batch: approximately how many records a micro-batch has at most.
        is_fresh: whether no micro-batch with the ingress was planned yet.
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
        """The earliest time at which to list the shards again, by the monotonic clock."""
        self._has_logged_trouble = False
        """Whether the log has a warning that the shards cannot be listed."""
        self._reopened_since: dict[ShardKey, float] = {}
        """When shards that were read to their ends were first seen as open in a list, by the monotonic clock."""
        self._readers: dict[ShardKey, ShardReader] = {}
        self._until: datetime | None = None
        """In a bounded run, the time up to which records are read; records that arrive later are not read."""
        self._is_stopped = threading.Event()
        self._opening = threading.Lock()
        """A lock that is held while a shard reader is made, so that :meth:`stop` stops this reader, too."""

    def check(self, timeout: timedelta) -> None:
        """Check the startup position, and that the shards of all streams can be listed.

        Raises:
            ConfigurationError: if the date of the startup position is in the future.
            ConnectorError: if a stream does not exist, or Kinesis does not answer within ``timeout``.
        """
        check_date(self._settings)
        check_streams(self._connection, self._shards, timeout)

    def initial_offset(self) -> Offset:
        """Return the offset at which reading begins; until a micro-batch is planned, always the same one."""
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
        """Return the end offset of the micro-batch that begins at ``start``.

        The result is ``start`` if no more records are fetched. A bounded run waits until there are
        records, or until all records up to its bound are read.
        """
        before = decode_offset(start)
        while True:
            self._raise_errors()
            # Before the positions are computed, which then include all records that are fetched by now.
            is_done = self._until is None or self._is_done(before)
            after = before | self._reachable(before)
            if self._is_stopped.is_set():
                return start
            if after != before:
                return encode_offset(after)
            if is_done or self._is_stopped.wait(_LOOK):
                return start

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Return tasks with the records between two offsets; fetch records that the driver does not hold."""
        return list(tasks_of(self._fetched(start, end)))

    def bound(self) -> None:
        """Make the run bounded: read only records that have arrived in Kinesis by now."""
        self._until = datetime.fromtimestamp(self._shards.latest, timezone.utc)
        for reader in self._readers.values():
            reader.bound(self._until)

    def stop(self) -> None:
        """Stop all shard readers; calls of other threads that wait for records return or fail at once."""
        with self._opening:
            self._is_stopped.set()
            for reader in self._readers.values():
                reader.stop()

    def metrics(self) -> Mapping[str, int]:
        """Return, for each stream, the lag behind its newest record, in milliseconds.

        The lag of a stream is the largest lag of its shards.
        """
        lags = dict.fromkeys(self._streams, timedelta(0))
        for (name, _), reader in list(self._readers.items()):
            lags[name] = max(lags.get(name, reader.behind), reader.behind)
        return {
            f"stream.{name}.millisBehindLatest": in_milliseconds(lag) for name, lag in lags.items()
        }

    def _fetched(
        self, start: Offset, end: Offset
    ) -> Iterator[tuple[Shard, Sequence[FetchedRecord], int]]:
        """Yield each shard with its records between two offsets, and with the offset of its first one."""
        after = decode_offset(end)
        for range_ in planned_ranges(decode_offset(start), after):
            if self._is_listed(range_):
                key = range_.name, range_.id
                reader = self._reader_of(key, range_.start, after[range_.name])
                records = _as_planned(
                    reader.shard, reader.between(range_.start, range_.end), range_
                )
                self._check_count(reader.shard, records, range_)
                yield reader.shard, records, range_.start.count

    def _resolved_begin(self) -> float | None:
        """Return the time from which on records are read, in seconds since the epoch; None for all records."""
        if self._begin is FromEnd.EARLIEST:
            return None
        begin = self._begin.timestamp() if isinstance(self._begin, datetime) else self._shards.now
        return math.floor(begin * 1000) / 1000  # Kinesis counts in milliseconds

    def _reachable(self, before: Mapping[str, StreamPosition]) -> dict[str, StreamPosition]:
        """Return the positions of all streams at the end of a micro-batch that begins at ``before``."""
        for key in ended_shards(self._streams, before):
            if (reader := self._readers.pop(key, None)) is not None:
                reader.stop()
        if needs_new_list(self._streams, before, self._shards.by_stream):
            self._list_again()
        plan = plan_shards(self._streams, before, self._shards.by_stream)
        for name, id_ in plan.lost_shards:
            self._report_lost_shard(name, id_)
        if reopened := self._reopened_shards(before):
            # The records are read by the next micro-batch, so that this one ends where reading begins after a crash.
            return read_anew(plan.streams, reopened)
        positions = plan.open_shards
        readers = {
            (name, id_): self._reader_of((name, id_), position, plan.streams[name])
            for (name, id_), position in positions.items()
        }
        return plan.ending_at(share_records(positions, readers, self._records_per_batch))

    def _reopened_shards(self, before: Mapping[str, StreamPosition]) -> set[ShardKey]:
        """Return the shards that must be read again from their beginnings, as their streams were created anew.

        Raises:
            ConnectorError: if there is one, and ``onDataLoss`` is ``fail``.
        """
        listed_at, since = self._shards.listed_at, self._reopened_since
        reopened = reopened_shards(self._streams, before, self._shards.by_stream)
        # The list itself may have been made before the shard ended, if no later list could be made.
        self._reopened_since = {key: since.get(key, time.monotonic()) for key in reopened}
        believed = {
            key
            for key, first in self._reopened_since.items()
            if listed_at - first > _BELIEVED_AFTER.total_seconds()
        }
        for name, id_ in sorted(believed):
            self._report_loss(
                f"stream {name} was deleted and created anew: shard {id_}, which was read to its end, is open",
                "unread records of the deleted stream are lost",
            )
        return believed

    def _list_again(self) -> None:
        """List the shards of all streams, unless they were listed less than a second ago.

        Raises:
            ConnectorError: if the shards cannot be listed, and the reason is not temporary.
        """
        if time.monotonic() < self._list_at:
            return
        self._list_at = time.monotonic() + _LIST_AGAIN.total_seconds()
        trouble = self._shards.update()
        if trouble is not None and not trouble.is_temporary:
            raise unlisted_streams_error(self._connection, trouble)
        if trouble is not None and not self._has_logged_trouble:
            owner = self._connection.owner
            logger.warning(
                "%s: the shards of its streams cannot be listed (%s); trying again, and reading the known shards",
                owner,
                trouble.text,
            )
        self._has_logged_trouble = trouble is not None

    def _reader_of(
        self, key: ShardKey, position: ShardPosition, stream: StreamPosition
    ) -> ShardReader:
        """Return the reader of a shard; if the shard has none, make a reader that begins at ``position``."""
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
                f"an unfinished micro-batch of the checkpoint reads stream {name}, which the ingress no longer lists",
                RequestFailure(
                    "list this stream again until one run has finished the micro-batch",
                    is_temporary=False,
                ),
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
        """Return whether the run has read all records up to its bound."""
        exhausted = {
            key for key, reader in self._readers.items() if reader.caught_up or reader.ended
        }
        return is_all_read(self._streams, before, self._shards.by_stream, exhausted)

    def _is_listed(self, range_: ShardRange) -> bool:
        """Return whether Kinesis still lists a shard that a planned micro-batch reads.

        Raises:
            ConnectorError: if Kinesis does not list the shard, and ``onDataLoss`` is ``fail``.
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
        """Check that Kinesis still had all records that a planned micro-batch reads of a shard.

        Raises:
            ConnectorError: if records are missing, and ``onDataLoss`` is ``fail``.
        """
        count, planned_count = _count(records), range_.end.count - range_.start.count
        if count != planned_count:
            self._report_loss(
                f"{planned_count - count} of {planned_count} records of shard {shard.id} of stream "
                f"{shard.stream} are gone after sequence number {range_.start.after}"
            )

    def _report_lost_shard(self, name: str, id_: str) -> None:
        self._report_loss(
            f"Kinesis no longer has shard {id_} of stream {name}, which had unread records"
        )

    def _report_loss(self, what: str, why: str = "their retention period has ended") -> None:
        """Raise an error or log a warning about lost records, as ``onDataLoss`` demands.

        Raises:
            ConnectorError: if ``onDataLoss`` is ``fail``.
        """
        if self._on_data_loss is OnDataLoss.GO_ON:
            logger.warning("%s: %s: %s; going on without them", self._connection.owner, what, why)
            return
        advice = (
            f"{why}; set onDataLoss: go-on to go on without these records, or start with a new "
            "checkpoint"
        )
        raise connector_error(self._connection, what, RequestFailure(advice, is_temporary=False))


def _count(records: Sequence[FetchedRecord]) -> int:
    return sum(len(record.parts) for record in records)


def _as_planned(
    shard: Shard, records: Sequence[FetchedRecord], range_: ShardRange
) -> Sequence[FetchedRecord]:
    """Return the records of a planned micro-batch with the parts that were planned, also by an earlier version."""
    planned_count = range_.end.count - range_.start.count
    if _count(records) != planned_count:
        former = [record.as_formerly(shard) for record in records]
        if _count(former) == planned_count:
            return former
    return records
