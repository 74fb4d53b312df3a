# SPDX-License-Identifier: Apache-2.0
"""The feedback source: messages between functions, out of the outbox and into the next batch.

A streaming source whose offset is the number of a batch: everything that functions sent in
batches up to that one has been delivered. Only committed batches count, so a message is never
delivered that a repeated batch would not have sent. The offset stays where it is while nothing
is sent: an idle stream runs no batches.

Spark asks for offsets in a process of its own, beside the driver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from statefun.protocol.runtime_pb2 import EffectStream
from statefun.runtime.commit_log import CommitLog
from statefun.runtime.effects import MESSAGE_SCHEMA, read_batches
from statefun.runtime.envelope import SCHEMA
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import Outbox
from statefun.sdk.errors import CheckpointError

_NAME = "statefun-feedback"
_CHECKPOINT = "checkpoint"
_BATCH = "batch"
_NONE = -1
_TASK_RECORDS = 50_000
"""So many messages are read by one task before another one is worth its start."""


def read_feedback(session: SparkSession, checkpoint: Folder) -> DataFrame:
    """Return the messages that the query in ``checkpoint`` sends to its own functions."""
    session.dataSource.register(_FeedbackSource)
    return session.readStream.format(_NAME).option(_CHECKPOINT, checkpoint.location).load()


def delivered(offset: Mapping[str, Any] | None) -> int:
    """Return up to which batch messages have been delivered, by an offset of the source; or -1."""
    return _NONE if offset is None else int(offset[_BATCH])


@attrs.frozen
class _Stream:
    """One stream of messages in the outbox."""

    batch: int
    segment: int
    first: int
    """How many messages of the same micro-batch are before it."""


class _Task(InputPartition):
    """What one Spark task reads."""

    def __init__(self, streams: Sequence[_Stream]) -> None:
        super().__init__(tuple(streams))


class _FeedbackSource(DataSource):
    """What Spark makes readers with."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's
        return FeedbackReader(Folder.at(self.options[_CHECKPOINT]))


class FeedbackReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the messages of committed batches."""

    def __init__(self, checkpoint: Folder) -> None:
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._seen: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Begin before the first batch."""
        return {_BATCH: _NONE}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Do not stop at what is there now: what ingress records cause belongs to them."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802, ARG002 - Spark's
        """Return the newest committed batch that has sent messages, or ``start``.

        What is new is found by asking for the next batch by name, without listing anything.
        """
        latest = delivered(start)
        if self._seen is None:
            newest = self._commit_log.newest()
            left = [batch for batch in self._outbox.batches() if batch <= newest]
            latest = max([latest, *filter(self._messages, left)])
            self._seen = newest
        while self._commit_log.has(self._seen + 1):
            self._seen += 1
            if self._messages(self._seen):
                latest = self._seen
        return {_BATCH: latest}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Divide the messages of the batches behind ``start``, up to ``end``, among tasks."""
        tasks: list[list[_Stream]] = []
        records, full_at = 0, 0
        first, last = delivered(start) + 1, delivered(end)
        if first <= last and not self._messages(last):
            raise CheckpointError(
                f"the messages of batch {last} are no longer in "
                f"{self._outbox.batch_folder(last).location}, and have not been delivered yet; "
                "restore the checkpoint from a copy"
            )
        for batch in [batch for batch in self._outbox.batches() if first <= batch <= last]:
            for index, stream in self._messages(batch).items():
                if not tasks or records >= full_at:
                    tasks.append([])
                    full_at = records + _TASK_RECORDS
                tasks[-1].append(_Stream(batch, index, records))
                records += stream.records
        return [_Task(streams) for streams in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one task, as rows of ``envelope.SCHEMA``, numbered in order."""
        for stream in partition.value:
            found = self._messages(stream.batch)[stream.segment]
            offset = stream.first
            with self._outbox.open(stream.batch, found) as file:
                for batch in read_batches(file):
                    yield _rows(batch, offset)
                    offset += len(batch)

    def stop(self) -> None:
        """End the process that asks for offsets, if Spark has left it.

        It would try to tell Spark of the end of its input, and print the traceback of that.
        """
        if isinstance(sys.exc_info()[1], EOFError):
            os._exit(0)

    def _messages(self, batch: int) -> dict[int, EffectStream]:
        """Return the streams of messages of a batch, by their segment's number."""
        manifest = self._outbox.manifest(batch)
        if manifest is None:
            return {}
        return {
            index: segment.messages
            for index, segment in enumerate(manifest.segments)
            if segment.messages.records
        }


def _rows(messages: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    count = len(messages)
    columns = dict(zip(MESSAGE_SCHEMA.names, messages.columns, strict=True))
    columns["offset"] = pa.array(range(offset, offset + count), pa.int64())
    columns["topic"] = pa.nulls(count, pa.string())
    columns["partition"] = pa.nulls(count, pa.int32())
    return pa.record_batch({name: columns[name] for name in SCHEMA.names})
