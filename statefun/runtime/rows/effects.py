# SPDX-License-Identifier: Apache-2.0
"""Effects of function calls, encoded as Arrow streams for the outbox, and decoded again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO

import pyarrow as pa

from statefun.module.sinks import EgressRecord, headers_size
from statefun.runtime.columns import values_of
from statefun.sdk.egress import KafkaEgressMessage

EGRESS_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
        pa.field("partition", pa.int32()),
        pa.field("timestamp", pa.int64()),  # milliseconds since the epoch
    ]
)
MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("target", pa.binary()),
        pa.field("caller", pa.binary()),
        pa.field("typename", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("trace", pa.string()),
    ]
)


BATCH_BYTES = 16 * 1024 * 1024
"""From here on an Arrow batch is closed and another one begun.

Spark reads a batch as a whole, outside its heap, where there is little room. And a column holds
2 GiB at most, while one invocation may send more than that."""
_NUMBER_BYTES = 4
"""The approximate size of a number or of a null."""


_make_record = partial(tuple.__new__, EgressRecord)


def row_size(row: tuple[Any, ...]) -> int:
    """Return the bytes of an effect's columns; for text, a lower bound.

    >>> row_size(EgressRecord("topic", b"key", None, [("name", b"value"), ("none", None)], 7))
    33
    """
    size = 0
    for cell in row:
        kind = type(cell)
        if kind is bytes or kind is str:
            size += len(cell)
        elif cell is None or kind is int:
            size += _NUMBER_BYTES
        elif isinstance(cell, (bytes, str)):  # of classes that users' serializers return
            size += len(cell)
        else:
            size += headers_size(cell)
    return size


class EffectRows:
    """Collects effects of one kind, in order."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[tuple[Any, ...]] = []
        self._ends: list[int] = []
        """Where Arrow batches end, each of little more than ``BATCH_BYTES``."""
        self._full = BATCH_BYTES
        """The size at which the next one ends."""
        self.size = 0
        """Bytes of all columns so far."""

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, row: tuple[Any, ...]) -> None:
        """Add an effect, of the schema's columns."""
        self._rows.append(row)
        self.size += row_size(row)
        if self.size >= self._full:
            self._ends.append(len(self._rows))
            self._full = self.size + BATCH_BYTES

    def take(self) -> bytes:
        """Return the collected effects as one Arrow IPC stream, and start anew."""
        rows, ends = self._rows, [*self._ends, len(self._rows)]
        self._rows, self._ends, self._full, self.size = [], [], BATCH_BYTES, 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for start, end in pairwise([0, *ends]):
                if start < end:
                    writer.write_batch(_record_batch(rows[start:end], self._schema))
        return bytes(sink.getvalue())


def _record_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.record_batch([_column(cells, field.type) for cells, field in columns], schema=schema)


def _column(cells: tuple[Any, ...], type_: pa.DataType) -> pa.Array:
    if cells.count(None) == len(cells):
        return pa.nulls(len(cells), type_)
    return pa.array(cells, type_)


class Effects:
    """Collects the effects of invocations."""

    def __init__(self) -> None:
        self.egress: defaultdict[str, EffectRows] = defaultdict(lambda: EffectRows(EGRESS_SCHEMA))
        """Records by their egress."""
        self.messages = EffectRows(MESSAGE_SCHEMA)
        self.buckets: set[int] = set()
        """The timer buckets among the targets of the messages."""

    def __bool__(self) -> bool:
        return bool(self.messages) or any(self.egress.values())

    @property
    def size(self) -> int:
        """Bytes of all columns so far."""
        total = self.messages.size
        for rows in self.egress.values():
            total += rows.size
        return total


def read_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Read an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.PythonFile(file, mode="r")) as reader:
        yield from reader


def read_egress_records(file: BinaryIO) -> Iterator[EgressRecord]:
    """Read egress records from an Arrow IPC stream."""
    for batch in read_batches(file):
        yield from map(_make_record, zip(*map(values_of, batch.columns), strict=True))


def egress_row(message: KafkaEgressMessage) -> tuple[Any, ...]:
    """Return a row of ``EGRESS_SCHEMA``."""
    return (
        message.topic,
        message.key,
        message.value,
        message.headers or None,
        message.partition,
        message.timestamp_millis,
    )
