# SPDX-License-Identifier: Apache-2.0
"""Decodes stored values for people or for columns of tables, with a program's types or with the primitive types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

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
from statefun.sdk.types import Type

if TYPE_CHECKING:  # most values need no column, and a command starts faster without pyarrow
    from statefun.runtime.stored.columns_of_classes import Column

_PRIMITIVES: Mapping[str, Type[Any]] = {
    type_.typename: type_
    for type_ in (
        BoolType,
        IntType,
        LongType,
        FloatType,
        DoubleType,
        StringType,
        BytesType,
        KafkaIntType,
        KafkaLongType,
    )
}
PRIMITIVE_TYPES = tuple(_PRIMITIVES)
"""The typenames of the types that every program has."""


@attrs.frozen
class Decoded:
    """A stored value: decoded, or its bytes if they cannot be decoded; if it is secret, it has neither."""

    value: Any
    """The value in the form of its column; the stored bytes if ``problem`` is not None or the type is unknown."""
    problem: str | None = None
    """Why the bytes do not decode; None if they do, or if nothing is known about their type."""
    is_secret: bool = False
    """Whether the value is secret; then ``value`` is None."""


SECRET_VALUE = Decoded(None, is_secret=True)
"""Stands for a value that must not be shown."""


def primitive_type(typename: str) -> Type[Any] | None:
    """Return the primitive type with a typename, such as the type of whole numbers; None for any other typename."""
    return _PRIMITIVES.get(typename)


class ValueDecoder:
    """Decodes the values of one type, also of the older types that it upgrades.

    Args:
        type_: the type; None if nothing is known about it.
    """

    def __init__(self, type_: Type[Any] | None) -> None:
        self._type = type_

    @cached_property
    def column(self) -> Column:
        """The type of the decoded values, and how they become values of a column."""
        from statefun.runtime.stored.value_columns import column_of  # noqa: PLC0415 - see above

        return column_of(self._type)

    def decode(self, typename: str, content: bytes) -> Decoded:
        """Decode a value that is stored with a typename; bytes that do not decode stay as they are."""
        type_ = self._type
        if type_ is None:
            return Decoded(content)
        if not type_.reads(typename):
            return Decoded(content, f"it is stored as {typename}, and declared as {type_.typename}")
        try:
            if type_.typename in _PRIMITIVES:  # whatever the bytes are, a column can have the value
                return Decoded(type_.decode(typename, content))
            return self._decode_for_column(type_, typename, content)
        except Exception as error:  # noqa: BLE001 - whatever a user's deserializer raises
            return Decoded(content, f"it does not decode as {typename}: {line_of(error)}")

    def loss(self, cell: Any, typename: str, content: bytes) -> str | None:
        """Return why a decoded value is not exactly the stored one; None if its cell becomes the same value again.

        Args:
            cell: the decoded value, in the form of its column.
            typename: the typename with which it is stored.
            content: the stored value.
        """
        from statefun.runtime.stored.restored_values import is_restored  # noqa: PLC0415 - see above
        from statefun.runtime.stored.value_columns import BYTES_COLUMN  # noqa: PLC0415 - as above

        type_ = self._type
        if type_ is None or type_.typename in _PRIMITIVES or self.column is BYTES_COLUMN:
            return None
        if cell is None:
            return "it is a null, which stands for no value in its column"
        if is_restored(type_, self.column, cell, type_.decode(typename, content)):
            return None
        return "its column cannot have exactly this value"

    def _decode_for_column(self, type_: Type[Any], typename: str, content: bytes) -> Decoded:
        import pyarrow as pa  # noqa: PLC0415 - see above

        from statefun.runtime.stored.value_columns import BYTES_COLUMN  # noqa: PLC0415 - as above

        if self.column is BYTES_COLUMN:
            return Decoded(content)
        value = self.column.convert(type_.decode(typename, content))
        pa.scalar(value, self.column.type)
        return Decoded(value)
