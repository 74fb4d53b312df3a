# SPDX-License-Identifier: Apache-2.0
"""Makes values of a program's types of the cells of columns, and finds the values that their cells change."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa

from statefun.runtime.stored.columns_of_classes import Column
from statefun.runtime.stored.value_columns import avro_schema_of
from statefun.sdk.fields import are_same, pydantic_models
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import Type


def restored_value(type_: Type[Any], column: Column, cell: Any) -> Any:
    """Return the value of a type that a cell stands for; any exception means that there is no such value.

    Args:
        type_: the type.
        column: the column of the type.
        cell: a cell of the column, or of the column of another table that has such values.
    """
    if isinstance(type_, StructuredType):
        is_whole = isinstance(cell, str) and column.type != pa.string() and cell[:1] in {"{", "["}
        parts = json.loads(cell) if is_whole else column.restore(cell)
        return type_.serializer().deserialize(_encoded(parts, type_))
    schema = avro_schema_of(type_)
    if schema is None:
        return column.restore(cell)
    from statefun.formats import avro  # noqa: PLC0415 - only programs with Avro have such types

    return avro.decode(avro.encode(column.restore(cell), schema), schema)


def _encoded(parts: Any, type_: StructuredType[Any]) -> bytes:
    if not type_.is_json:
        return msgspec.msgpack.encode(parts)
    if not pydantic_models(type_.annotation):
        return msgspec.json.encode(parts)
    import pydantic_core  # noqa: PLC0415 - only programs with Pydantic have models

    return pydantic_core.to_json(parts)  # bytes are UTF-8, as in models


def is_restored(type_: Type[Any], column: Column, cell: Any, value: Any) -> bool:
    """Return whether a cell becomes the value again of which it was made.

    Args:
        type_: the type of the value.
        column: the column of the type.
        cell: the cell.
        value: the value.
    """
    try:
        again = restored_value(type_, column, cell)
        return are_same(again, value) or (
            again == value and are_same(_ordered(again), _ordered(value))
        )
    except Exception:  # noqa: BLE001 - whatever a user's class raises
        return False


def _ordered(value: Any) -> Any:
    """Return a value with the keys of its dicts in order: ``are_same`` takes another order for a difference."""
    return msgspec.to_builtins(value, enc_hook=_plain, order="deterministic")


def _plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else repr(value)
