# SPDX-License-Identifier: Apache-2.0
"""Encodes fetched records as Arrow batches, which Spark's tasks decode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from statefun.components.running import RECORDS_ARROW
from statefun.kinesis.shards import FetchedRecord, Shard

SEQUENCE_NUMBER = "kinesis.sequenceNumber"
"""The name of the header that holds a record's sequence number."""
_TASK_RECORDS = 20_000
_TASK_BYTES = 8 * 1024 * 1024
"""A task with so many records or bytes gets no more records."""
_FEW_RECORDS = 1000
"""A task with fewer records gets records of the next shard, too: to start a task takes longer than to read them."""


def tasks_of(shards: Iterable[tuple[Shard, Sequence[FetchedRecord], int]]) -> Iterator[bytes]:
    """Yield tasks that hold the records of shards, each task as bytes.

    Args:
        shards: for each shard, its records in order, and the offset of the first one, which is its number in the
            shard.
    """
    rows: list[tuple[Any, ...]] = []
    size = 0
    for shard, records, offset in shards:
        for record in records:
            header = [{"key": SEQUENCE_NUMBER, "value": record.sequence.encode()}]
            for key, value in record.parts:
                place = (shard.stream, shard.partition, offset, record.arrival)
                rows.append((key.encode(), value, *place, header))
                offset += 1  # noqa: PLW2901 - of the next record
                size += len(key) + len(value)
            if len(rows) >= _TASK_RECORDS or size >= _TASK_BYTES:
                yield _task(rows)
                rows, size = [], 0
        if len(rows) >= _FEW_RECORDS:
            yield _task(rows)
            rows, size = [], 0
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


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the records that a task holds, as Arrow batches."""
    yield from pa.ipc.open_stream(task)
