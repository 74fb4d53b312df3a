# SPDX-License-Identifier: Apache-2.0
"""Encodes the entries of a trace journal, and their details, as Arrow streams, and decodes them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from statefun.engine.span_details import SpanDetails
from statefun.engine.trace_journal import TraceJournal
from statefun.runtime.columns import values_of

_ID = pa.binary(8)
_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.int32()),
        pa.field("span", _ID),
        pa.field("parent", _ID),
        pa.field("key", pa.binary()),
        pa.field("text", pa.string()),
    ]
)
_READING = pa.ipc.IpcReadOptions(use_threads=False)
"""Most streams are small, and other threads would take longer to begin than to read them."""
_TRACE = pa.binary(16)
_DETAILS = pa.schema(
    [
        pa.field("trace", _TRACE),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
    ]
)


class TraceEntry(NamedTuple):
    """An entry of a trace journal; see :class:`~statefun.engine.trace_journal.TraceJournal`."""

    kind: int
    span: bytes
    parent: bytes
    key: bytes
    text: str


class EntryDetails(NamedTuple):
    """The details of an entry; see :class:`~statefun.engine.span_details.SpanDetails`."""

    trace: bytes
    start: int
    end: int


def trace_stream(journal: TraceJournal) -> bytes:
    """Encode the entries of a task as a compressed Arrow IPC stream."""
    columns = [
        pa.array(journal.kinds, pa.int32()),
        _ids(journal.spans, _ID),
        _ids(journal.parents, _ID),
        pa.array(journal.keys, pa.binary()),
        pa.array(journal.texts, pa.string()),
    ]
    return _stream(columns, _SCHEMA)


def details_stream(details: SpanDetails) -> bytes:
    """Encode the details of the entries of a task as a compressed Arrow IPC stream."""
    times = (pa.array(each, pa.int64()) for each in (details.starts, details.ends))
    return _stream([_ids(details.traces, _TRACE), *times], _DETAILS)


def details_of(stream: bytes) -> Iterator[EntryDetails]:
    """Yield the details that :func:`details_stream` has encoded."""
    for batch in pa.ipc.open_stream(stream, options=_READING):
        yield from map(EntryDetails._make, zip(*map(values_of, batch.columns), strict=True))


def trace_table(streams: Iterable[bytes]) -> pa.Table:
    """Decode the entries that :func:`trace_stream` has encoded, of all tasks of a micro-batch."""
    readers = (pa.ipc.open_stream(stream, options=_READING) for stream in streams)
    batches = [batch for reader in readers for batch in reader]
    return pa.Table.from_batches(batches, _SCHEMA)


def entries_of(table: pa.Table) -> Iterator[TraceEntry]:
    """Yield the rows of a table of :func:`trace_table`."""
    for batch in table.to_batches():
        yield from map(TraceEntry._make, zip(*map(values_of, batch.columns), strict=True))


def _stream(columns: list[pa.Array], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue())


def _ids(texts: list[str], kind: pa.DataType) -> pa.Array:
    """Return ids as an array of values with a fixed number of bytes, without an object for each."""
    return pa.Array.from_buffers(
        kind, len(texts), [None, pa.py_buffer(bytes.fromhex("".join(texts)))]
    )
