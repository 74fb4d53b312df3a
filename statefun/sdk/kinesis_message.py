# SPDX-License-Identifier: Apache-2.0
"""Messages to Kinesis egresses."""

from __future__ import annotations

from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from statefun.protocol.kinesis_egress_pb2 import KinesisEgressRecord
from statefun.sdk.address import checked_typename
from statefun.sdk.egress import EgressMessage
from statefun.sdk.encoding import typed
from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import Type, TypedValue

KINESIS_RECORD_TYPENAME = "type.googleapis.com/io.statefun.sdk.egress.KinesisEgressRecord"


class KinesisEgressMessage(EgressMessage):
    """A record for a Kinesis egress.

    >>> message = KinesisEgressMessage(
    ...     "com.example/out", stream="greetings", partition_key="Ada", value="Hello Ada"
    ... )
    >>> message.value_typename()
    'type.googleapis.com/io.statefun.sdk.egress.KinesisEgressRecord'

    Without a ``value_type``, bytes are written as they are, and a string in UTF-8; a value of another
    class needs a ``value_type``.

    Raises:
        DefinitionError: if the stream, the value or the partition key is missing, or the value
            cannot be encoded.
    """

    __slots__ = ("explicit_hash_key", "partition_key", "stream", "value")

    def __init__(  # noqa: PLR0913 - a record has so many parts
        self,
        typename: str,
        *,
        stream: str,
        partition_key: str,
        value: Any,
        value_type: Type[Any] | None = None,
        explicit_hash_key: str | None = None,
    ) -> None:
        """Make the record.

        Args:
            typename: the egress's id, ``namespace/name``.
            stream: the stream to write to.
            partition_key: records with equal keys go to one shard; Kinesis accepts 1 to 256 characters.
            value: the value.
            value_type: the type that encodes the value.
            explicit_hash_key: a number below 2 ** 128, which chooses the shard regardless of the
                partition key.
        """
        self.typename = checked_typename(typename)
        for name, text in (("stream", stream), ("partition_key", partition_key)):
            if not (isinstance(text, str) and (text or name == "partition_key")):
                raise DefinitionError(
                    f"a record for egress {typename} needs a {name}, not {text!r}"
                )
        self.stream = stream
        self.partition_key = partition_key
        self.explicit_hash_key = explicit_hash_key or None
        try:
            partition_key.encode()
            self.value = _value_bytes(typename, value, value_type)
        except UnicodeEncodeError as error:
            raise DefinitionError(
                f"a record for egress {typename}, stream {stream}: its key or value is not valid "
                f"Unicode: {error}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        parts: dict[str, Any] = {
            "stream": self.stream,
            "partition_key": self.partition_key,
            "value": self.value,
            "explicit_hash_key": self.explicit_hash_key,
        }
        return partial(KinesisEgressMessage, self.typename, **parts), ()

    @property
    def typed_value(self) -> TypedValue:
        """The record as an encoded ``KinesisEgressRecord``, the form in which functions send records."""
        record = KinesisEgressRecord(
            stream=self.stream,
            partition_key=self.partition_key,
            value_bytes=self.value,
            explicit_hash_key=self.explicit_hash_key or "",
        )
        return TypedValue(KINESIS_RECORD_TYPENAME, record.SerializeToString())

    @classmethod
    def from_typed_value(cls, typename: str, typed_value: TypedValue) -> KinesisEgressMessage:
        """Decode a record from a ``KinesisEgressRecord``, the form in which functions send records.

        Raises:
            DefinitionError: if the value is not a ``KinesisEgressRecord``, or a required
                part is missing.
        """
        if typed_value.typename != KINESIS_RECORD_TYPENAME:
            raise DefinitionError(
                f"the Kinesis egress {typename} takes values of type {KINESIS_RECORD_TYPENAME}, not of "
                f"type {typed_value.typename}; build the message with KinesisEgressMessage"
            )
        try:
            record = KinesisEgressRecord.FromString(typed_value.value)
        except DecodeError as error:
            raise DefinitionError(
                f"a record for egress {typename} ({len(typed_value.value)} bytes) does not decode "
                f"as {KINESIS_RECORD_TYPENAME}: {error}"
            ) from error
        return cls(
            typename,
            stream=record.stream,
            partition_key=record.partition_key,
            value=record.value_bytes,
            explicit_hash_key=record.explicit_hash_key,
        )

    def __repr__(self) -> str:
        return (
            f"KinesisEgressMessage({self.typename!r}, stream={self.stream!r}, "
            f"partition_key={self.partition_key!r}, {len(self.value)} bytes)"
        )


def kinesis_egress_message(  # noqa: PLR0913, PLR0917 - the parts of a record, as users know them
    typename: str,
    stream: str,
    value: Any,
    partition_key: str,
    value_type: Type[Any] | None = None,
    explicit_hash_key: str | None = None,
) -> KinesisEgressMessage:
    """Build a record for a Kinesis egress: :class:`KinesisEgressMessage` under its older name.

    Args:
        typename: the egress's id, ``namespace/name``.
        stream: the stream to write to.
        value: the value: bytes, a string (written in UTF-8), or a value of ``value_type``.
        partition_key: records with equal keys go to one shard.
        value_type: the type that encodes the value.
        explicit_hash_key: chooses the shard regardless of the partition key.

    Raises:
        DefinitionError: as for :class:`KinesisEgressMessage`.

    >>> message = kinesis_egress_message("com.example/out", "greetings", "Hello Ada", "Ada")
    >>> message.value_typename()
    'type.googleapis.com/io.statefun.sdk.egress.KinesisEgressRecord'
    """
    return KinesisEgressMessage(
        typename,
        stream=stream,
        partition_key=partition_key,
        value=value,
        value_type=value_type,
        explicit_hash_key=explicit_hash_key,
    )


def _value_bytes(egress: str, value: Any, value_type: Type[Any] | None) -> bytes:
    if value_type is not None and value is not None:
        return typed(value, value_type).value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise DefinitionError(
        f"a record for egress {egress} needs a value: bytes, a string, or another object "
        f"together with the argument value_type, not {type(value).__name__}"
    )
