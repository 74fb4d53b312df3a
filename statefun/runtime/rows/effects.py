# SPDX-License-Identifier: Apache-2.0
"""Effects of function calls, encoded as Arrow streams for the outbox, and decoded again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from statefun.runtime.columns import values_of
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError, UnknownEgressError
from statefun.sdk.types import default_types

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


class EgressRecord(NamedTuple):
    """A record for a Kafka egress, ready to be produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None
    partition: int | None = None
    timestamp: int | None = None
    """Milliseconds since the epoch."""


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


def headers_size(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the bytes of the names and values of headers."""
    if not headers:
        return 0
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


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


Serializer = Callable[[Any], KafkaEgressMessage | None]
"""Converts a value to a record; returns None to send nothing."""


class Sink(NamedTuple):
    """The serializer and the size limit of an egress."""

    max_record_size: int
    """The limit of a record, in bytes: key, value and headers together."""
    serializer: Serializer | None = None
    """Makes records of values; None if only records are taken."""


def egress_record(
    message: EgressMessage, egresses: Mapping[str, Sink]
) -> KafkaEgressMessage | None:
    """Return the record of ``message``; None if the egress's serializer drops it.

    Args:
        message: a message that a function sends.
        egresses: all declared egresses, by id.

    Raises:
        UnknownEgressError: if ``egresses`` has no such egress.
        DefinitionError: if the egress cannot take the value, or the record is too large for it.
    """
    if message.typename not in egresses:
        declared = ", ".join(sorted(egresses)) or "none"
        raise UnknownEgressError(
            f"egress {message.typename} is not declared in module.yaml (declared: {declared})"
        )
    sink = egresses[message.typename]
    if isinstance(message, KafkaEgressMessage):
        record: KafkaEgressMessage | None = message
    elif sink.serializer is None or message.typed_value.typename == KAFKA_RECORD_TYPENAME:
        record = KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
    else:
        record = _serialized(message, sink.serializer)
    if record is not None:
        _check_size(record, sink.max_record_size)
    return record


def _check_size(record: KafkaEgressMessage, limit: int) -> None:
    size = len(record.value or b"") + headers_size(record.headers)
    if record.key is not None:
        size += len(record.key.encode())
    if size > limit:
        raise DefinitionError(
            f"a record for egress {record.typename}, topic {record.topic}, has {size:,} bytes with "
            f"key and headers, and the egress takes {limit:,}; send less, or raise its property "
            "max.request.size and the topic's max.message.bytes"
        )


def _serialized(message: EgressMessage, serializer: Serializer) -> KafkaEgressMessage | None:
    egress, (typename, content) = message.typename, message.typed_value
    type_ = default_types.find(typename)
    if type_ is None:
        raise DefinitionError(
            f"no type named {typename!r} is registered, so that the serializer of egress {egress} "
            "cannot be given its value"
        )
    try:
        record = serializer(type_.serializer().deserialize(content))
    except Exception as error:
        raise DefinitionError(
            f"the serializer of egress {egress} failed: {type(error).__name__}: {error}"
        ) from error
    if not (
        record is None or (isinstance(record, KafkaEgressMessage) and record.typename == egress)
    ):
        raise DefinitionError(
            f"the serializer of egress {egress} returns a KafkaEgressMessage for that egress, or "
            f"None, and not {record!r}"
        )
    return record
