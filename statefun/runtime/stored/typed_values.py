# SPDX-License-Identifier: Apache-2.0
"""Decodes stored values for people and for columns: with a program's types, or those that every program has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow as pa
from google.protobuf.message import Message

from statefun.runtime.stored.columns_of_classes import (
    JSON,
    Column,
    as_it_is,
    column_of_annotation,
)
from statefun.runtime.stored.columns_of_formats import column_of_message, column_of_schema
from statefun.sdk.primitives import (
    BoolType,
    BytesType,
    DoubleType,
    FloatType,
    IntType,
    KafkaIntType,
    KafkaLongType,
    LongType,
    StringType,
)
from statefun.sdk.raised import line_of
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import SimpleType, Type

_PRIMITIVES: Mapping[str, tuple[Type[Any], pa.DataType]] = {
    type_.typename: (type_, column)
    for type_, column in (
        (BoolType, pa.bool_()),
        (IntType, pa.int32()),
        (LongType, pa.int64()),
        (FloatType, pa.float32()),
        (DoubleType, pa.float64()),
        (StringType, pa.string()),
        (BytesType, pa.binary()),
        (KafkaIntType, pa.int32()),
        (KafkaLongType, pa.int64()),
    )
}
PRIMITIVE_TYPES = tuple(_PRIMITIVES)
"""The typenames of the types that every program has."""
_BYTES = Column(pa.binary(), as_it_is)


@attrs.frozen
class Decoded:
    """A stored value, decoded or not."""

    value: Any
    """The value in the form of its column; the stored bytes if ``problem`` is not None or the type is unknown."""
    problem: str | None = None
    """Why the bytes do not decode; None if they do, or if nothing is known about their type."""
    is_secret: bool = False
    """Whether the value is secret; then ``value`` is None."""


SECRET_VALUE = Decoded(None, is_secret=True)
"""Stands for a value that must not be shown."""


def primitive_type(typename: str) -> Type[Any] | None:
    """Return the type with a typename if every program has it, such as that of whole numbers; else None."""
    found = _PRIMITIVES.get(typename)
    return found[0] if found else None


def column_of(type_: Type[Any] | None) -> Column:  # noqa: PLR0911 - one for each kind of types
    """Return the column for the values of a type; bytes for a type that nothing is known about.

    >>> column_of(IntType).type, column_of(None).type
    (DataType(int32), DataType(binary))
    """
    if type_ is None:
        return _BYTES
    if type_.typename in _PRIMITIVES:
        return Column(_PRIMITIVES[type_.typename][1], as_it_is)
    if isinstance(type_, StructuredType):
        return column_of_annotation(type_.annotation)
    if not isinstance(type_, SimpleType):
        return _BYTES
    if isinstance(type_.python_type, type) and issubclass(type_.python_type, Message):
        descriptor: Any = type_.python_type.DESCRIPTOR
        return column_of_message(descriptor)
    if type_.deserialize_fn is json.loads:
        return JSON
    # The two kinds of types with Avro schemas keep the schema that they read with.
    schema = getattr(getattr(type_.deserialize_fn, "__self__", None), "schema", None)
    return column_of_schema(schema) if isinstance(schema, str) else _BYTES


class ValueDecoder:
    """Decodes the values of one type, also of the older types that it upgrades.

    Args:
        type_: the type; None if nothing is known about it.
    """

    def __init__(self, type_: Type[Any] | None) -> None:
        self._type = type_
        self.column = column_of(type_)
        """The type of the decoded values, and how they become values of a column."""
        # Primitive types decode to values that their columns can have, whatever the bytes are.
        self._is_checked = type_ is not None and type_.typename not in _PRIMITIVES

    def decode(self, typename: str, content: bytes) -> Decoded:
        """Decode a value that is stored with a typename; bytes that do not decode stay as they are."""
        type_ = self._type
        if type_ is None:
            return Decoded(content)
        if not type_.reads(typename):
            return Decoded(content, f"it is stored as {typename}, and declared as {type_.typename}")
        if self.column is _BYTES:
            return Decoded(content)
        try:
            value = type_.decode(typename, content)
            if self._is_checked:
                value = self.column.convert(value)
                pa.scalar(value, self.column.type)
        except Exception as error:  # noqa: BLE001 - whatever a user's deserializer raises
            return Decoded(content, f"it does not decode as {typename}: {line_of(error)}")
        return Decoded(value)
