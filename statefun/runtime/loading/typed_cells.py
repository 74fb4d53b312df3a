# SPDX-License-Identifier: Apache-2.0
"""Encodes the cells of columns as values of a type: the opposite of the columns of ``statefun.state()``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from statefun.runtime.stored.restored_values import restored_value
from statefun.runtime.stored.typed_values import ValueDecoder
from statefun.runtime.stored.value_columns import column_of
from statefun.sdk.fields import are_same
from statefun.sdk.primitives import BytesType
from statefun.sdk.types import Type, TypedValue


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
        self._column = column_of(type_)

    def encode(self, cell: Any) -> TypedValue:
        """Encode a cell; any exception means that the type has no such value."""
        type_ = self._type
        if self._takes_bytes and isinstance(cell, bytes):
            self._serializer.deserialize(cell)
            return TypedValue(type_.typename, cell)
        value = restored_value(type_, self._column, cell)
        return TypedValue(type_.typename, self._serializer.serialize(value))

    def shows(self, cell: Any, stored: TypedValue) -> bool:
        """Return whether a cell is the one in which ``statefun.state()`` shows a stored value; a null if it shows none."""
        decoder = ValueDecoder(self._type)
        decoded = decoder.decode(*stored)
        shown = None
        if decoded.problem is None:
            scalar = pa.scalar(decoded.value, decoder.column.type)
            shown = scalar.as_py(maps_as_pydicts="strict")
        return are_same(shown, cell) or bool(shown == cell)
