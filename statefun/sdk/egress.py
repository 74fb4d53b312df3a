# SPDX-License-Identifier: Apache-2.0
"""Messages to egresses."""

from __future__ import annotations

import copy
from datetime import datetime
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.sdk.address import checked_typename
from statefun.sdk.encoding import as_typed_value, typed
from statefun.sdk.errors import DefinitionError
from statefun.sdk.kafka_parts import (
    Headers,
    are_encoded,
    check_placement,
    header_bytes,
    record_value,
)
from statefun.sdk.times import from_epoch_millis, to_epoch_millis
from statefun.sdk.types import Type, TypedValue

KAFKA_RECORD_TYPENAME = "type.googleapis.com/io.statefun.sdk.egress.KafkaProducerRecord"


class EgressMessage:
    """A typed value for the egress ``typename``; the value's type decides whether the egress accepts it.

    >>> message = EgressMessage("com.example/out", TypedValue("com.example/Order", b"{}"))
    >>> message.value_typename(), message.raw_value()
    ('com.example/Order', b'{}')
    """

    __slots__ = ("_typed_value", "typename")

    def __init__(self, typename: str, typed_value: TypedValue) -> None:
        self.typename = checked_typename(typename)
        self._typed_value = as_typed_value(typed_value)

    def __reduce__(self) -> tuple[Any, ...]:
        return EgressMessage, (self.typename, self.typed_value)

    @property
    def typed_value(self) -> TypedValue:
        """The value that the egress receives."""
        return self._typed_value

    def value_typename(self) -> str:
        """Return the name of the value's type."""
        return self.typed_value.typename

    def raw_value(self) -> bytes:
        """Return the encoded value: the bytes that its type has made of it."""
        return self.typed_value.value


class KafkaEgressMessage(EgressMessage):
    """A record for a Kafka egress, built by steps or by keywords.

    >>> by_steps = (
    ...     KafkaEgressMessage.for_egress("com.example/greets")
    ...     .with_topic("greetings")
    ...     .with_key("Ada")
    ...     .with_value("Hello Ada")
    ...     .build()
    ... )
    >>> by_keywords = KafkaEgressMessage(
    ...     "com.example/greets", topic="greetings", key="Ada", value="Hello Ada"
    ... )
    >>> by_steps.typed_value == by_keywords.typed_value
    True

    Without a ``value_type``, bytes are written as they are, a string in UTF-8, an int in 4 and a
    float in 8 big-endian bytes; a value of another class needs a ``value_type``. The value None
    makes a tombstone, which in a compacted topic deletes the earlier records with its key.

    >>> deleted = KafkaEgressMessage(
    ...     "com.example/greets", topic="greetings", key="Ada", value=None, headers={"why": "asked"}
    ... )
    >>> deleted.value, deleted.headers
    (None, (('why', b'asked'),))

    Raises:
        DefinitionError: if the topic is missing, the key is no string, the value cannot be
            encoded, or another argument is invalid.
    """

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    def __init__(  # noqa: PLR0913 - a record has so many parts
        self,
        typename: str,
        *,
        topic: str,
        value: Any,
        key: str | None = None,
        value_type: Type[Any] | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        """Make the record.

        Args:
            typename: the egress's id, ``namespace/name``.
            topic: the topic to write to.
            value: the value; None, without a ``value_type``, makes a tombstone.
            key: the key; records with equal keys go to one partition, records without a key to any
                partition. An empty key is no key.
            value_type: the type that encodes the value.
            headers: names and values; string values are encoded in UTF-8.
            partition: the partition to write to, regardless of the key.
            timestamp: the record's time, with a time zone, to the millisecond; if not given, the time at
                which the record is written. The client cannot write the first millisecond of 1970: it
                becomes the second one.
        """
        try:
            self.value = record_value(typename, topic, key, value, value_type)
            self.headers: tuple[tuple[str, bytes | None], ...] = ()
            if headers:
                self.headers = header_bytes(typename, topic, headers)
        except UnicodeEncodeError as error:
            raise DefinitionError(
                f"a record for egress {typename}, topic {topic}: "
                f"its key, value or a header is not valid Unicode: {error}"
            ) from error
        self.typename = checked_typename(typename)
        self.topic = topic
        self.key = key or None  # an empty key is no key on the wire
        self.partition = partition
        self.timestamp = timestamp
        if partition is not None or timestamp is not None:
            check_placement(typename, topic, partition, timestamp)
            self.partition = None if partition is None else int(partition)

    def __copy__(self) -> KafkaEgressMessage:
        # As that of a message.
        made = object.__new__(type(self))
        made.typename, made.topic, made.key, made.value = (
            self.typename,
            self.topic,
            self.key,
            self.value,
        )
        made.headers, made.partition, made.timestamp = self.headers, self.partition, self.timestamp
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        parts: dict[str, Any] = {
            "topic": self.topic,
            "value": self.value,
            "key": self.key,
            "headers": self.headers,
            "partition": self.partition,
            "timestamp": self.timestamp,
        }
        return partial(KafkaEgressMessage, self.typename, **parts), ()

    @property
    def typed_value(self) -> TypedValue:
        """The record as an encoded ``KafkaProducerRecord``, the form in which functions send records."""
        record = KafkaProducerRecord(
            topic=self.topic,
            key=self.key or "",
            value_bytes=self.value or b"",
            tombstone=self.value is None,
            partition=self.partition,
            timestamp=self.timestamp_millis,
        )
        for name, value in self.headers:
            record.headers.add(key=name, value=value)
        return TypedValue(KAFKA_RECORD_TYPENAME, record.SerializeToString())

    @property
    def timestamp_millis(self) -> int | None:
        """The timestamp in milliseconds since the epoch, as in Kafka; None if the record has none."""
        return None if self.timestamp is None else to_epoch_millis(self.timestamp)

    @classmethod
    def from_typed_value(cls, typename: str, typed_value: TypedValue) -> KafkaEgressMessage:
        """Decode a record from a ``KafkaProducerRecord``, the form in which functions send records.

        Raises:
            DefinitionError: if the value is not a ``KafkaProducerRecord`` with a topic, or has an
                invalid part.
        """
        if typed_value.typename != KAFKA_RECORD_TYPENAME:
            raise DefinitionError(
                f"the Kafka egress {typename} takes values of type {KAFKA_RECORD_TYPENAME}, "
                f"not of type {typed_value.typename}; build the message with KafkaEgressMessage"
            )
        try:
            record = KafkaProducerRecord.FromString(typed_value.value)
        except DecodeError as error:
            raise DefinitionError(
                f"a record for egress {typename} ({len(typed_value.value)} bytes) does not decode "
                f"as {KAFKA_RECORD_TYPENAME}: {error}"
            ) from error
        try:
            has_time = record.HasField("timestamp")
            timestamp = from_epoch_millis(record.timestamp) if has_time else None
        except OverflowError:
            raise DefinitionError(
                f"a record for egress {typename}, topic {record.topic}: its timestamp, "
                f"{record.timestamp} milliseconds since 1970, is not between the years 1 and 9999"
            ) from None
        return cls(
            typename,
            topic=record.topic,
            key=record.key,
            value=None if record.tombstone else record.value_bytes,
            headers=[
                (header.key, header.value if header.HasField("value") else None)
                for header in record.headers
            ],
            partition=record.partition if record.HasField("partition") else None,
            timestamp=timestamp,
        )

    @staticmethod
    def for_egress(typename: str) -> KafkaEgressMessageBuilder:
        """Return a builder of a record for the egress with the id ``typename``, ``namespace/name``."""
        return KafkaEgressMessageBuilder(checked_typename(typename))

    def __repr__(self) -> str:
        size = "no value" if self.value is None else f"{len(self.value)} bytes"
        return (
            f"KafkaEgressMessage({self.typename!r}, topic={self.topic!r}, key={self.key!r}, {size})"
        )


def record_to_send(message: EgressMessage) -> EgressMessage:
    """Return a copy of a message to an egress: the function may change its own object, and send it again.

    Raises:
        DefinitionError: if the function has given it an invalid part.
    """
    if not isinstance(message, KafkaEgressMessage):
        return copy.copy(message)
    made = object.__new__(type(message))  # what a copy does, but each part is read once
    made.typename = checked_typename(message.typename)
    topic = made.topic = message.topic
    key = made.key = message.key
    value = made.value = message.value
    headers = made.headers = message.headers
    partition = made.partition = message.partition
    timestamp = made.timestamp = message.timestamp
    if partition is None and timestamp is None and are_encoded(topic, key, value, headers):
        return made
    return KafkaEgressMessage(
        made.typename,
        topic=topic,
        value=value,
        key=key,
        headers=headers,
        partition=partition,
        timestamp=timestamp,
    )


class KafkaEgressMessageBuilder:
    """Collects the parts of a :class:`KafkaEgressMessage`; every step returns the builder."""

    __slots__ = ("_parts", "_typename")

    def __init__(self, typename: str) -> None:
        self._typename = typename
        self._parts: dict[str, Any] = {}

    def with_topic(self, topic: str) -> KafkaEgressMessageBuilder:
        """Set the topic to write to."""
        return self._with(topic=topic)

    def with_key(self, key: str | None) -> KafkaEgressMessageBuilder:
        """Set the record's key; records without a key, or with an empty one, are spread over the partitions."""
        return self._with(key=key)

    def with_value(
        self, value: Any, value_type: Type[Any] | None = None
    ) -> KafkaEgressMessageBuilder:
        """Set the record's value; see :class:`KafkaEgressMessage` for how it is encoded."""
        return self._with(value=value, value_type=value_type)

    def with_headers(self, headers: Headers) -> KafkaEgressMessageBuilder:
        """Set the record's headers."""
        return self._with(headers=headers)

    def with_partition(self, partition: int | None) -> KafkaEgressMessageBuilder:
        """Set the partition to write to, regardless of the key."""
        return self._with(partition=partition)

    def with_timestamp(self, timestamp: datetime | None) -> KafkaEgressMessageBuilder:
        """Set the record's time, with a time zone; the default is the time at which it is written."""
        return self._with(timestamp=timestamp)

    def build(self) -> KafkaEgressMessage:
        """Return the record.

        Raises:
            DefinitionError: if the topic or the value is missing, or a part is invalid.
        """
        for part in ("topic", "value"):
            if part not in self._parts:
                raise DefinitionError(
                    f"a record for egress {self._typename} needs a {part}; call with_{part}()"
                )
        return KafkaEgressMessage(self._typename, **self._parts)

    def _with(self, **parts: Any) -> KafkaEgressMessageBuilder:
        self._parts |= parts
        return self


def egress_message_builder(
    target_typename: str, value: Any, value_type: Type[Any]
) -> EgressMessage:
    """Build a message to an egress that accepts values of ``value_type``.

    A Kafka egress accepts such values if it was declared with a serializer.

    Args:
        target_typename: the egress's id, ``namespace/name``.
        value: the value to send.
        value_type: the type that encodes the value.

    Raises:
        DefinitionError: if the id is ill-formed, or the type cannot encode the value.

    >>> from statefun import StringType
    >>> egress_message_builder("com.example/greets", "Hello", StringType).typed_value.typename
    'io.statefun.types/string'
    """
    return EgressMessage(target_typename, typed(value, value_type))


def kafka_egress_message(
    typename: str,
    topic: str,
    value: Any,
    value_type: Type[Any] | None = None,
    key: str | bytes | None = None,
) -> KafkaEgressMessage:
    """Build a record for a Kafka egress: :class:`KafkaEgressMessage` under its older name.

    Raises:
        DefinitionError: as for :class:`KafkaEgressMessage`, and if the value is None: only
            ``KafkaEgressMessage(..., value=None)`` makes a tombstone.

    >>> kafka_egress_message("com.example/greets", topic="greetings", key="Ada", value="Hello").value
    b'Hello'
    """
    if value is None:
        raise DefinitionError(
            f"a record for egress {typename}, topic {topic}, needs a value; for a tombstone use "
            "KafkaEgressMessage(..., value=None)"
        )
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError as error:
            raise DefinitionError(
                f"a record for egress {typename}, topic {topic}: its key must be text, or bytes in UTF-8: {error.reason} at "
                f"byte {error.start}"
            ) from None
    return KafkaEgressMessage(typename, topic=topic, key=key, value=value, value_type=value_type)
