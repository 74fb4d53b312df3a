# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.utils`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from typing import Any

from statefun import Type, ValueDecodeError, make_json_type, make_protobuf_type
from statefun.protocol.request_reply_pb2 import TypedValue
from statefun.published import warn_of_move

__all__ = ["from_typed_value", "make_json_type", "make_protobuf_type", "to_typed_value"]

warn_of_move(__name__)


def to_typed_value(type: Type[Any], value: Any) -> TypedValue:  # noqa: A002 - its published name
    """Encode a value for the request-reply protocol; for None, the result has a type, but no value.

    Raises:
        Exception: if the type cannot encode the value.
    """
    if value is None:
        return TypedValue(typename=type.typename)
    content = type.serializer().serialize(value)
    return TypedValue(typename=type.typename, value=content, has_value=True)


def from_typed_value(tpe: Type[Any], typed_value: TypedValue | None) -> Any:
    """Decode a value of the request-reply protocol; return None if ``typed_value`` has no value.

    Raises:
        ValueDecodeError: if the value has another type.
        Exception: if the type cannot decode the bytes.
    """
    if typed_value is None or not typed_value.has_value:
        return None
    if not tpe.reads(typed_value.typename):
        raise ValueDecodeError(
            f"a value of type {typed_value.typename} cannot be read as {tpe.typename}"
        )
    return tpe.decode(typed_value.typename, typed_value.value)
