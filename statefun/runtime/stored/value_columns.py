# SPDX-License-Identifier: Apache-2.0
"""The columns in which DataFrames show values of a type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import SimpleType, Type

_PRIMITIVES: Mapping[str, pa.DataType] = {
    BoolType.typename: pa.bool_(),
    IntType.typename: pa.int32(),
    LongType.typename: pa.int64(),
    FloatType.typename: pa.float32(),
    DoubleType.typename: pa.float64(),
    StringType.typename: pa.string(),
    BytesType.typename: pa.binary(),
    KafkaIntType.typename: pa.int32(),
    KafkaLongType.typename: pa.int64(),
}
BYTES_COLUMN = Column(pa.binary(), as_it_is)
"""The column of values that nothing is known about."""


def column_of(type_: Type[Any] | None) -> Column:  # noqa: PLR0911 - one for each kind of types
    """Return the column for the values of a type; bytes for a type that nothing is known about.

    >>> column_of(IntType).type, column_of(None).type
    (DataType(int32), DataType(binary))
    """
    if type_ is None:
        return BYTES_COLUMN
    if type_.typename in _PRIMITIVES:
        return Column(_PRIMITIVES[type_.typename], as_it_is)
    if isinstance(type_, StructuredType):
        return _not_binary(column_of_annotation(type_.annotation))
    if not isinstance(type_, SimpleType):
        return BYTES_COLUMN
    if isinstance(type_.python_type, type) and issubclass(type_.python_type, Message):
        descriptor: Any = type_.python_type.DESCRIPTOR
        return column_of_message(descriptor)
    if type_.deserialize_fn is json.loads:
        return JSON
    schema = avro_schema_of(type_)
    return BYTES_COLUMN if schema is None else _not_binary(column_of_schema(schema))


def avro_schema_of(type_: Type[Any]) -> str | None:
    """Return the Avro schema with which a type reads its values, as JSON text; None if it has no such schema."""
    owner = getattr(getattr(type_, "deserialize_fn", None), "__self__", None)
    schema = getattr(owner, "schema", None)  # both kinds of types with schemas keep it there
    return schema if isinstance(schema, str) else None


def _not_binary(column: Column) -> Column:
    """Return the column, or that of stored bytes instead of a binary one: a binary cell always has stored bytes."""
    return BYTES_COLUMN if column.type == pa.binary() else column
