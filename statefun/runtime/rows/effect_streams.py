# SPDX-License-Identifier: Apache-2.0
"""Encodes effects of invocations as Arrow streams for the outbox, and decodes them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from statefun.engine.effects import EffectColumns
from statefun.engine.sinks import EgressRecord
from statefun.runtime.columns import values_of

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
        pa.field("event_time", pa.int64()),  # milliseconds since the epoch
    ]
)
_make_record = partial(tuple.__new__, EgressRecord)


def arrow_stream(pieces: Iterable[EffectColumns], schema: pa.Schema) -> bytes:
    """Encode effects as one Arrow IPC stream, with a record batch for each item of ``pieces``."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for piece in pieces:
            columns = zip(piece, schema, strict=True)
            arrays = [_column(cells, field.type) for cells, field in columns]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def _column(cells: list[Any], type_: pa.DataType) -> pa.Array:
    first = cells[0]
    if cells[-1] == first and cells.count(first) == len(cells):  # such as the topic
        return pa.nulls(len(cells), type_) if first is None else _repeated(first, type_, len(cells))
    return pa.array(cells, type_)


def _repeated(cell: Any, type_: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.array([cell], type_)[0], count)


def read_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.PythonFile(file, mode="r")) as reader:
        yield from reader


def read_egress_records(file: BinaryIO) -> Iterator[EgressRecord]:
    """Yield the egress records in an Arrow IPC stream."""
    for batch in read_batches(file):
        yield from map(_make_record, zip(*map(values_of, batch.columns), strict=True))
