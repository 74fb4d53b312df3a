# SPDX-License-Identifier: Apache-2.0
"""Sinks: egresses as functions see them, which convert the values that functions send to records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from statefun.module.model import MAX_RECORD_SIZE, Module
from statefun.module.topic_routes import TransformedTopic
from statefun.module.transforming import transformed_record
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError, UnknownEgressError, caused
from statefun.sdk.secrecy import reason, shown_cause
from statefun.sdk.types import default_types


class EgressRecord(NamedTuple):
    """A record for a Kafka egress, ready to be produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None
    partition: int | None = None
    timestamp: int | None = None
    """The time of the record, in milliseconds since the epoch; None for the time of its publication."""


def headers_size(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return how many bytes the names and values of headers have together."""
    if not headers:
        return 0
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


Serializer = Callable[[Any], KafkaEgressMessage | None]
"""Converts a value that a function sends to a record; returns None to send nothing."""
Convert = Callable[[EgressMessage], KafkaEgressMessage | None]
"""Converts a message of a function to a record; returns None to send nothing."""

_KAFKA_CURE = (
    "send less, or raise the egress's property max.request.size and the topic's max.message.bytes"
)


class Sink(NamedTuple):
    """How an egress converts messages to records, and the size limit of its records."""

    convert: Convert
    """Converts a message of a function to a record; returns None to send nothing."""
    max_record_size: int
    """The size of the largest record that the egress accepts, in bytes of key, value and headers."""
    cure: str = "send less"
    """What users can do if a record is too large; the error text ends with it."""
    topics: Sequence[TransformedTopic] = ()
    """The topics whose records are transformed, with their transforms."""

    @classmethod
    def for_kafka(
        cls,
        max_record_size: int = MAX_RECORD_SIZE,
        serializer: Serializer | None = None,
        topics: Sequence[TransformedTopic] = (),
    ) -> Sink:
        """Return the sink of a Kafka egress; without a serializer, the egress accepts only Kafka records."""
        return cls(partial(_kafka_record, serializer), max_record_size, _KAFKA_CURE, topics)


def sinks_of(module: Module) -> dict[str, Sink]:
    """Return the sinks of all declared egresses, by id."""
    kafka = {
        str(egress.id): Sink.for_kafka(egress.max_record_size, egress.serializer, egress.topics)
        for egress in module.egresses
    }
    connectors = {
        str(egress.id): Sink(egress.convert, egress.max_record_size)
        for egress in module.connector_egresses
    }
    return kafka | connectors


def egress_record(
    message: EgressMessage, egresses: Mapping[str, Sink], now: int
) -> KafkaEgressMessage | None:
    """Return the record that ``message`` becomes; None if the egress's serializer or transforms drop it.

    Args:
        message: a message that a function sends.
        egresses: all declared egresses, by id.
        now: the time of the micro-batch, in milliseconds since the epoch.

    Raises:
        UnknownEgressError: if ``egresses`` has no such egress.
        DefinitionError: if the egress cannot accept the value, or the record is too large for it.
    """
    sink = egresses.get(message.typename)
    if sink is None:
        declared = ", ".join(sorted(egresses)) or "none"
        raise UnknownEgressError(
            f"egress {message.typename} is not declared in module.yaml (declared: {declared})"
        )
    convert, most, cure, topics = sink
    record: Any = convert(message)  # a connector may return anything
    if record is None:
        return None
    if not isinstance(record, KafkaEgressMessage):
        raise DefinitionError(
            f"the connector of egress {message.typename} has returned {record!r:.200} for a message; it must "
            "return a KafkaEgressMessage, or None to send nothing"
        )
    if topics:
        record = transformed_record(record, topics, now)
        if record is None:
            return None
    value, headers, key = record.value, record.headers, record.key
    size = 0 if value is None else len(value)
    if headers:
        size += headers_size(headers)
    if key is not None:
        size += len(key.encode())
    if size > most:
        raise DefinitionError(
            f"a record for egress {record.typename}, topic {record.topic}, has {size:,} bytes with "
            f"key and headers, but the egress accepts {most:,} at most; {cure}"
        )
    return cast("KafkaEgressMessage", record)


def _kafka_record(
    serializer: Serializer | None, message: EgressMessage
) -> KafkaEgressMessage | None:
    if isinstance(message, KafkaEgressMessage):
        return message
    if serializer is None or message.typed_value.typename == KAFKA_RECORD_TYPENAME:
        return KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
    return _serialized(message, serializer)


def _serialized(message: EgressMessage, serializer: Serializer) -> KafkaEgressMessage | None:
    egress, (typename, content) = message.typename, message.typed_value
    type_ = default_types.find(typename)
    if type_ is None:
        raise DefinitionError(
            f"no type named {typename!r} is registered, so the serializer of egress {egress} cannot get "
            "a value of that type; register the type in the program"
        )
    try:
        record: Any = serializer(type_.serializer().deserialize(content))
    except Exception as error:  # noqa: BLE001 - users' code may raise any exception
        text = f"the serializer of egress {egress} failed: {reason(error, type_)}"
        cause = shown_cause(error, type_)
        raise caused(DefinitionError(text), cause) from cause
    if not (
        record is None or (isinstance(record, KafkaEgressMessage) and record.typename == egress)
    ):
        raise DefinitionError(
            f"the serializer of egress {egress} has returned {record!r:.200}; it must return a "
            "KafkaEgressMessage for that egress, or None to send nothing"
        )
    return record
