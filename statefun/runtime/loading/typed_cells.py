# SPDX-License-Identifier: Apache-2.0
"""Encodes the cells of columns as values of a type: the opposite of the columns of ``statefun.state()``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgspec
from google.protobuf.message import Message

from statefun.sdk.primitives import BytesType
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import SimpleType, Type, TypedValue


class CellEncoder:
    r"""Encodes the cells of a column as values of one type.

    A cell has the Spark type to which a table in docs/state.md maps this type, or it has the bytes of a stored value.

    >>> from statefun import IntType
    >>> CellEncoder(IntType).encode(7)
    TypedValue(typename='io.statefun.types/int', value=b'\r\x07\x00\x00\x00')
    """

    def __init__(self, type_: Type[Any]) -> None:
        self._type = type_
        self._serializer = type_.serializer()
        self._takes_bytes = type_.typename != BytesType.typename

    def encode(self, cell: Any) -> TypedValue:
        """Encode a cell; any exception means that the type has no such value."""
        type_ = self._type
        if self._takes_bytes and isinstance(cell, bytes):
            self._serializer.deserialize(cell)
            return TypedValue(type_.typename, cell)
        return TypedValue(type_.typename, self._serializer.serialize(self._value(cell)))

    def _value(self, cell: Any) -> Any:
        """Convert a cell to a value of the program's type."""
        type_ = self._type
        if isinstance(type_, StructuredType):
            if isinstance(cell, str) and _is_json(cell):
                cell = json.loads(cell)
            form = msgspec.json if type_.is_json else msgspec.msgpack
            return self._serializer.deserialize(form.encode(cell))
        if not isinstance(type_, SimpleType):
            return cell
        class_ = type_.python_type
        if isinstance(class_, type) and issubclass(class_, Message):
            return _message(class_, cell)
        if type_.deserialize_fn is json.loads and isinstance(cell, str):
            return json.loads(cell)
        return cell


def _is_json(cell: str) -> bool:
    """Return whether a text looks like a JSON object or list, and so has to be decoded."""
    return cell[:1] in {"{", "["}


def _message(class_: type[Message], cell: Any) -> Message:
    """Return a Protobuf message with the fields of a struct, or Protobuf's timestamp for a date and time."""
    if isinstance(cell, datetime):
        moment: Any = class_()
        moment.FromDatetime(cell)
        return cast("Message", moment)
    return class_(**_set_fields(cell))


def _set_fields(cell: Any) -> Any:
    """Return a struct as a dict without the fields that are null, as Protobuf has no such fields."""
    if isinstance(cell, Mapping):
        return {name: _set_fields(each) for name, each in cell.items() if each is not None}
    return [_set_fields(each) for each in cell] if isinstance(cell, list) else cell
