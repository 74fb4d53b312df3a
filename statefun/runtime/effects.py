# SPDX-License-Identifier: Apache-2.0
"""Effects in columns: from function calls to Arrow streams in the outbox, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

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


class EgressRecord(NamedTuple):
    """A record for a Kafka egress, ready to be produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None
    partition: int | None = None
    timestamp: int | None = None
    """Milliseconds since the epoch."""


class EffectRows:
    """Collects effects of one kind, in order."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[tuple[Any, ...]] = []
        self.size = 0
        """Bytes of all values so far."""

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, row: tuple[Any, ...], size: int) -> None:
        """Add an effect, of the schema's columns, whose value has ``size`` bytes."""
        self._rows.append(row)
        self.size += size

    def take(self) -> bytes:
        """Return what was collected as one Arrow IPC stream, and start anew."""
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*self._rows, strict=True), self._schema, strict=True)
        ]
        self._rows = []
        self.size = 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_batch(pa.record_batch(columns, schema=self._schema))
        return bytes(sink.getvalue())


class Effects:
    """Collects what invocations send."""

    def __init__(self) -> None:
        self.egress: defaultdict[str, EffectRows] = defaultdict(lambda: EffectRows(EGRESS_SCHEMA))
        """Records by the egress that they are for."""
        self.messages = EffectRows(MESSAGE_SCHEMA)
        self.buckets: set[int] = set()
        """The timer buckets that some of the messages go to."""

    def __bool__(self) -> bool:
        return bool(self.messages) or any(self.egress.values())

    @property
    def size(self) -> int:
        """Bytes of all values so far."""
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
        yield from map(EgressRecord, *(column.to_pylist() for column in batch.columns))


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
"""Makes a record of a value; None to send nothing."""


def egress_record(
    message: EgressMessage, egresses: Mapping[str, Serializer | None]
) -> KafkaEgressMessage | None:
    """Return the record that ``message`` is or becomes; None if its serializer drops it.

    Args:
        message: what a function sends.
        egresses: all that are declared, and what makes records of values for them.

    Raises:
        UnknownEgressError: if ``egresses`` has no such egress.
        DefinitionError: if the egress cannot take the value.
    """
    if message.typename not in egresses:
        declared = ", ".join(sorted(egresses)) or "none"
        raise UnknownEgressError(
            f"egress {message.typename} is not declared in module.yaml (declared: {declared})"
        )
    if isinstance(message, KafkaEgressMessage):
        return message
    serializer = egresses[message.typename]
    if serializer is not None and message.typed_value.typename != KAFKA_RECORD_TYPENAME:
        return _serialized(message, serializer)
    return KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)


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
