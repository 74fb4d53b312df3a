# SPDX-License-Identifier: Apache-2.0
"""Encodes the entries of a trace journal as an Arrow stream, and decodes them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

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


class TraceEntry(NamedTuple):
    """An entry of a trace journal; see :class:`~statefun.engine.trace_journal.TraceJournal`."""

    kind: int
    span: bytes
    parent: bytes
    key: bytes
    text: str


def trace_stream(journal: TraceJournal) -> bytes:
    """Encode the entries of a task as a compressed Arrow IPC stream."""
    columns = [
        pa.array(journal.kinds, pa.int32()),
        _ids(journal.spans),
        _ids(journal.parents),
        pa.array(journal.keys, pa.binary()),
        pa.array(journal.texts, pa.string()),
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
    return bytes(sink.getvalue())


def trace_table(streams: Iterable[bytes]) -> pa.Table:
    """Decode the entries that :func:`trace_stream` has encoded, of all tasks of a micro-batch."""
    readers = (pa.ipc.open_stream(stream, options=_READING) for stream in streams)
    batches = [batch for reader in readers for batch in reader]
    return pa.Table.from_batches(batches, _SCHEMA)


def entries_of(table: pa.Table) -> Iterator[TraceEntry]:
    """Yield the rows of a table of :func:`trace_table`."""
    for batch in table.to_batches():
        yield from map(TraceEntry._make, zip(*map(values_of, batch.columns), strict=True))


def _ids(texts: list[str]) -> pa.Array:
    """Return ids as an array of 8 bytes each, without an object for each."""
    return pa.Array.from_buffers(
        _ID, len(texts), [None, pa.py_buffer(bytes.fromhex("".join(texts)))]
    )
