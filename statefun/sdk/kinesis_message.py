# SPDX-License-Identifier: Apache-2.0
"""Messages to Kinesis egresses."""

from __future__ import annotations

from typing import Any

from statefun.protocol.kinesis_egress_pb2 import KinesisEgressRecord
from statefun.sdk.address import checked_typename
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import Type, TypedValue, typed

KINESIS_RECORD_TYPENAME = "type.googleapis.com/io.statefun.sdk.egress.KinesisEgressRecord"


def kinesis_egress_message(  # noqa: PLR0913, PLR0917 - the parts of a record, as users know them
    typename: str,
    stream: str,
    value: Any,
    partition_key: str,
    value_type: Type[Any] | None = None,
    explicit_hash_key: str | None = None,
) -> EgressMessage:
    """Build a record for a Kinesis egress.

    Args:
        typename: the egress's id, ``namespace/name``.
        stream: the stream to write to.
        value: the value: bytes as they are, a string in UTF-8, anything else by its type.
        partition_key: records with equal keys go to one shard.
        value_type: how to encode the value.
        explicit_hash_key: chooses the shard regardless of the partition key.

    Raises:
        DefinitionError: if the stream, the value or the partition key is missing, or the value
            cannot be encoded.

    >>> message = kinesis_egress_message("com.example/out", "greetings", "Hello Ada", "Ada")
    >>> message.value_typename()
    'type.googleapis.com/io.statefun.sdk.egress.KinesisEgressRecord'
    """
    egress = checked_typename(typename)
    for name, text in (("stream", stream), ("partition_key", partition_key)):
        if not (isinstance(text, str) and (text or name == "partition_key")):
            raise DefinitionError(f"a record for egress {egress} needs a {name}, not {text!r}")
    try:
        record = KinesisEgressRecord(
            stream=stream,
            partition_key=partition_key,
            value_bytes=_value_bytes(egress, value, value_type),
            explicit_hash_key=explicit_hash_key or "",
        )
    except UnicodeEncodeError as error:
        raise DefinitionError(
            f"a record for egress {egress}, stream {stream!r}, is not valid Unicode: {error}"
        ) from error
    return EgressMessage(egress, TypedValue(KINESIS_RECORD_TYPENAME, record.SerializeToString()))


def _value_bytes(egress: str, value: Any, value_type: Type[Any] | None) -> bytes:
    if value_type is not None and value is not None:
        return typed(value, value_type).value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise DefinitionError(
        f"a record for egress {egress} needs a value: bytes, a string, or another one with its "
        f"value_type, not {value!r}"
    )
