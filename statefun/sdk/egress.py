# SPDX-License-Identifier: Apache-2.0
"""Messages to egresses."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf.message import DecodeError

from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.sdk.address import TypeName
from statefun.sdk.errors import DefinitionError
from statefun.sdk.message import typed
from statefun.sdk.types import Type, TypedValue

KAFKA_RECORD_TYPENAME = "type.googleapis.com/io.statefun.sdk.egress.KafkaProducerRecord"


class EgressMessage:
    """A typed value for the egress named ``typename``; its type tells the egress what to do."""

    __slots__ = ("_typed_value", "typename")

    def __init__(self, typename: str, typed_value: TypedValue) -> None:
        self.typename = typename
        self._typed_value = typed_value

    @property
    def typed_value(self) -> TypedValue:
        """What the egress receives."""
        return self._typed_value


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

    A value is bytes as they are, a string in UTF-8, an int in 4 and a float in 8 big-endian
    bytes; anything else needs its ``value_type``.

    Raises:
        DefinitionError: if the topic is missing, the key is no string, or the value cannot be
            encoded.
    """

    __slots__ = ("key", "topic", "value")

    def __init__(
        self,
        typename: str,
        *,
        topic: str,
        value: Any,
        key: str | None = None,
        value_type: Type[Any] | None = None,
    ) -> None:
        if not (isinstance(topic, str) and topic):
            raise DefinitionError(f"a record for egress {typename} needs a topic, not {topic!r}")
        if not (key is None or isinstance(key, str)):
            raise DefinitionError(
                f"a record for egress {typename}, topic {topic}: "
                f"its key is a string or None, not {key!r}"
            )
        self.typename = typename
        self.topic = topic
        self.key = key or None  # an empty key is no key on the wire
        try:
            (key or "").encode()  # a lone surrogate is noticed here, not when records are written
            self.value = _value_bytes(typename, topic, value, value_type)
        except UnicodeEncodeError as error:
            raise DefinitionError(
                f"a record for egress {typename}, topic {topic}: "
                f"its key or value is not valid Unicode: {error}"
            ) from error

    @property
    def typed_value(self) -> TypedValue:
        """The record in its wire form."""
        record = KafkaProducerRecord(topic=self.topic, key=self.key or "", value_bytes=self.value)
        return TypedValue(KAFKA_RECORD_TYPENAME, record.SerializeToString())

    @classmethod
    def from_typed_value(cls, typename: str, typed_value: TypedValue) -> KafkaEgressMessage:
        """Read a record from its wire form.

        Raises:
            DefinitionError: if the value is not a ``KafkaProducerRecord`` with a topic.
        """
        if typed_value.typename != KAFKA_RECORD_TYPENAME:
            raise DefinitionError(
                f"the Kafka egress {typename} takes {KAFKA_RECORD_TYPENAME}, "
                f"not {typed_value.typename}; build the message with KafkaEgressMessage"
            )
        try:
            record = KafkaProducerRecord.FromString(typed_value.value)
        except DecodeError as error:
            raise DefinitionError(
                f"a record for egress {typename} ({len(typed_value.value)} bytes) does not decode "
                f"as {KAFKA_RECORD_TYPENAME}: {error}"
            ) from error
        return cls(typename, topic=record.topic, key=record.key, value=record.value_bytes)

    @staticmethod
    def for_egress(typename: str) -> KafkaEgressBuilder:
        """Start building a record for the egress with that id, ``namespace/name``."""
        return KafkaEgressBuilder(str(TypeName.parse(typename)))

    def __repr__(self) -> str:
        return (
            f"KafkaEgressMessage({self.typename!r}, topic={self.topic!r}, key={self.key!r}, "
            f"{len(self.value)} bytes)"
        )


class KafkaEgressBuilder:
    """Collects the parts of a :class:`KafkaEgressMessage`; every step returns the builder."""

    __slots__ = ("_key", "_topic", "_typename", "_value", "_value_type")

    def __init__(self, typename: str) -> None:
        self._typename = typename
        self._topic = ""
        self._key: str | None = None
        self._value: Any = None
        self._value_type: Type[Any] | None = None

    def with_topic(self, topic: str) -> KafkaEgressBuilder:
        """Set the topic to write to."""
        self._topic = topic
        return self

    def with_key(self, key: str | None) -> KafkaEgressBuilder:
        """Set the record's key; without one, records are spread over the partitions."""
        self._key = key
        return self

    def with_value(self, value: Any, value_type: Type[Any] | None = None) -> KafkaEgressBuilder:
        """Set the record's value; see :class:`KafkaEgressMessage` for how it is encoded."""
        self._value = value
        self._value_type = value_type
        return self

    def build(self) -> KafkaEgressMessage:
        """Return the record.

        Raises:
            DefinitionError: if the topic or the value is missing, or does not fit.
        """
        return KafkaEgressMessage(
            self._typename,
            topic=self._topic,
            key=self._key,
            value=self._value,
            value_type=self._value_type,
        )


def kafka_egress_message(
    typename: str,
    topic: str,
    value: Any,
    value_type: Type[Any] | None = None,
    key: str | None = None,
) -> KafkaEgressMessage:
    """Build a record for a Kafka egress: :class:`KafkaEgressMessage` under its older name."""
    return KafkaEgressMessage(typename, topic=topic, key=key, value=value, value_type=value_type)


def _value_bytes(typename: str, topic: str, value: Any, value_type: Type[Any] | None) -> bytes:
    if value_type is not None:
        return typed(value, value_type).value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return struct.pack(">i", value)
        if isinstance(value, float):
            return struct.pack(">d", value)
    except struct.error as error:
        raise DefinitionError(
            f"a record for egress {typename}, topic {topic}: {value!r} does not fit: {error}; "
            "give a value_type such as LongType"
        ) from error
    raise DefinitionError(
        f"a record for egress {typename}, topic {topic}: a {type(value).__name__} needs its "
        "value_type; without one a value is bytes, str, int or float"
    )
