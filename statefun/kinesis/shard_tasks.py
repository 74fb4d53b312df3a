# SPDX-License-Identifier: Apache-2.0
"""Encodes fetched records as Arrow batches, which Spark's tasks decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from statefun.components.running import RECORDS_ARROW
from statefun.kinesis.shards import FetchedRecord, Shard

SEQUENCE_NUMBER = "kinesis.sequenceNumber"
"""The name of the header that holds a record's sequence number."""
_TASK_RECORDS = 20_000
_TASK_BYTES = 8 * 1024 * 1024


def tasks_of(shard: Shard, records: Sequence[FetchedRecord], first: int) -> Iterator[bytes]:
    """Yield tasks that hold the records of a shard, each as bytes.

    Args:
        shard: the shard.
        records: the records of the shard, in order.
        first: the number of the first record in the shard, which is its offset.
    """
    rows: list[tuple[Any, ...]] = []
    size = 0
    for record in records:
        header = [{"key": SEQUENCE_NUMBER, "value": record.sequence.encode()}]
        for key, value in record.parts:
            offset = first + len(rows)
            place = (shard.stream, shard.partition, offset, record.arrival)
            rows.append((key.encode(), value, *place, header))
        size += record.size
        if len(rows) >= _TASK_RECORDS or size >= _TASK_BYTES:
            yield _task(rows)
            first, rows, size = first + len(rows), [], 0
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
