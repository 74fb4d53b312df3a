# SPDX-License-Identifier: Apache-2.0
"""Effects in columns: from function calls to Arrow streams in the outbox, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import UnknownEgressError

EGRESS_SCHEMA = pa.schema(
    [
        pa.field("egress", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)


class EgressRecord(NamedTuple):
    """A record for a Kafka egress, ready to be produced."""

    egress: str
    topic: str
    key: bytes | None
    value: bytes


class EgressColumns:
    """Collects egress records column by column."""

    size: int
    """Bytes of all values so far."""
    _columns: tuple[list[str], list[str], list[str | None], list[bytes]]

    def __init__(self) -> None:
        self._clear()

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, message: KafkaEgressMessage) -> None:
        """Add a record."""
        egresses, topics, keys, values = self._columns
        egresses.append(message.typename)
        topics.append(message.topic)
        keys.append(message.key)
        values.append(message.value)
        self.size += len(message.value)

    def take(self) -> bytes:
        """Return what was collected as one Arrow IPC stream, and start anew."""
        batch = pa.record_batch(
            [
                pa.array(column, field.type)
                for column, field in zip(self._columns, EGRESS_SCHEMA, strict=True)
            ],
            schema=EGRESS_SCHEMA,
        )
        self._clear()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, EGRESS_SCHEMA) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())

    def _clear(self) -> None:
        self._columns = ([], [], [], [])
        self.size = 0


def read_egress_records(file: BinaryIO) -> Iterator[EgressRecord]:
    """Read records from Arrow IPC streams that follow each other in one file."""
    source = pa.PythonFile(file, mode="r")
    size = source.size()
    while source.tell() < size:
        with pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield from map(EgressRecord, *(column.to_pylist() for column in batch.columns))


def kafka_record(message: EgressMessage, egresses: Mapping[str, object]) -> KafkaEgressMessage:
    """Check that ``message`` is for a declared egress and one that it can take.

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
    return KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
