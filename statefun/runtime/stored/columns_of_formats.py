# SPDX-License-Identifier: Apache-2.0
"""Columns for values of Avro schemas and of Protobuf messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from statefun.runtime.stored.columns_of_classes import (
    JSON,
    MOMENT,
    Column,
    as_it_is,
    list_column,
    map_column,
    optional,
    struct_column,
    utc,
)

_TEXT = Column(pa.string(), str)
_AVRO: Mapping[str, Column] = {
    "boolean": Column(pa.bool_(), as_it_is),
    "int": Column(pa.int32(), as_it_is),
    "long": Column(pa.int64(), as_it_is),
    "float": Column(pa.float32(), float),
    "double": Column(pa.float64(), float),
    "bytes": Column(pa.binary(), bytes),
    "fixed": Column(pa.binary(), bytes),
    "string": _TEXT,
    "enum": _TEXT,
}


def _of_text(read: Callable[[str], Any]) -> Column:
    """Return the column of values that are shown as text, and that a function reads from this text."""
    return Column(pa.string(), str, lambda cell: read(cell) if isinstance(cell, str) else cell)


def _utc_if_moment(cell: Any) -> Any:
    return utc(cell) if isinstance(cell, datetime) else cell


def _local(cell: Any) -> Any:
    """Return a moment as date and time without a time zone: as the clocks of UTC show it."""
    is_moment = isinstance(cell, datetime) and cell.tzinfo is not None
    return cell.astimezone(timezone.utc).replace(tzinfo=None) if is_moment else cell


_UNITS = ("millis", "micros")
_LOGICAL: Mapping[str, Column] = {
    "date": Column(pa.date32(), as_it_is),
    "decimal": _of_text(Decimal),
    "uuid": _TEXT,
    "duration": _TEXT,
    **{f"timestamp-{unit}": Column(MOMENT, utc, _utc_if_moment) for unit in _UNITS},
    **{f"local-timestamp-{unit}": Column(MOMENT, utc, _local) for unit in _UNITS},
    **{f"time-{unit}": _of_text(time.fromisoformat) for unit in _UNITS},
}
_PROTOBUF: Mapping[int, Column] = {
    FieldDescriptor.CPPTYPE_BOOL: _AVRO["boolean"],
    FieldDescriptor.CPPTYPE_INT32: _AVRO["int"],
    FieldDescriptor.CPPTYPE_UINT32: _AVRO["long"],
    FieldDescriptor.CPPTYPE_INT64: _AVRO["long"],
    FieldDescriptor.CPPTYPE_UINT64: Column(
        pa.decimal128(20), as_it_is, lambda cell: int(cell) if isinstance(cell, Decimal) else cell
    ),
    FieldDescriptor.CPPTYPE_FLOAT: _AVRO["float"],
    FieldDescriptor.CPPTYPE_DOUBLE: _AVRO["double"],
}
_NUMBER = re.compile(r"-?\d+$")
"""A number of an enum that has no name."""
_TIMESTAMP = "google.protobuf.Timestamp"


def column_of_schema(schema: str) -> Column:
    """Return the column for the values of an Avro schema, given as JSON text.

    >>> column_of_schema('{"type": "array", "items": ["null", "int"]}').type
    ListType(list<item: int32>)
    """
    return _of_schema(json.loads(schema), {}, ())


def _of_schema(  # noqa: PLR0911 - one for each kind of schemas
    schema: Any, named: dict[str, Any], within: tuple[str, ...]
) -> Column:
    """Return the column of a schema.

    Args:
        schema: the schema, as parsed JSON.
        named: the schemas that have a name, by their names, as far as they were read.
        within: the names of the schemas that contain it, to find schemas that contain themselves.
    """
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        return optional(_of_schema(others[0], named, within) if len(others) == 1 else JSON)
    if isinstance(schema, str):
        if schema in within:
            return JSON
        return _AVRO.get(schema) or _of_schema(named.get(schema, {}), named, within)
    kind, name = schema.get("type"), schema.get("name", "")
    if name:
        full = name if "." in name else ".".join(filter(None, (schema.get("namespace"), name)))
        named |= {name: schema, full: schema}
        within = (*within, name, full)
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if kind == "record":
        fields = {
            field["name"]: _of_schema(field["type"], named, within) for field in schema["fields"]
        }
        return struct_column(fields, dict.get) if fields else JSON
    if kind == "array":
        return list_column(_of_schema(schema["items"], named, within))
    if kind == "map":
        return map_column(_TEXT, _of_schema(schema["values"], named, within))
    if isinstance(kind, str):
        return _AVRO.get(kind, JSON)
    return JSON if kind is None else _of_schema(kind, named, within)


def column_of_message(descriptor: Descriptor, within: tuple[str, ...] = ()) -> Column:
    """Return the column for the messages of a Protobuf descriptor.

    Args:
        descriptor: the descriptor of the messages.
        within: the full names of the messages that contain it, to find messages that contain themselves.
    """
    class_: Any = GetMessageClass(descriptor)
    if descriptor.full_name == _TIMESTAMP:
        return Column(
            MOMENT, lambda message: utc(message.ToDatetime()), lambda cell: _timestamp(class_, cell)
        )
    if descriptor.full_name in within or not descriptor.fields:
        return _of_text(lambda text: text_format.Parse(text, class_()))
    inside = (*within, descriptor.full_name)
    fields = {field.name: _of_field(field, inside) for field in descriptor.fields}
    columns = {name: column for name, (column, _) in fields.items()}
    getters = {name: get for name, (_, get) in fields.items()}
    return struct_column(
        columns,
        lambda message, name: getters[name](message),
        lambda cells: class_(**{name: each for name, each in cells.items() if each is not None}),
    )


def _timestamp(class_: Any, cell: Any) -> Any:
    if not isinstance(cell, datetime):
        return cell
    message = class_()
    message.FromDatetime(cell)
    return message


def _of_field(
    field: FieldDescriptor, within: tuple[str, ...]
) -> tuple[Column, Callable[[Any], Any]]:
    """Return the column of a field of a Protobuf message, and a function that reads the field of a message."""
    name = field.name
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (_of_item(message.fields_by_name[part], within) for part in ("key", "value"))
        return map_column(key, value), lambda owner: getattr(owner, name)
    item = _of_item(field, within)
    if field.is_repeated:
        return list_column(item), lambda owner: getattr(owner, name)
    if field.has_presence:
        return item, lambda owner: getattr(owner, name) if owner.HasField(name) else None
    return item, lambda owner: getattr(owner, name)


def _of_item(field: FieldDescriptor, within: tuple[str, ...]) -> Column:
    if field.message_type is not None:
        return column_of_message(field.message_type, within)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return Column(
            pa.string(),
            lambda number: names.get(number, str(number)),
            lambda cell: int(cell) if isinstance(cell, str) and _NUMBER.match(cell) else cell,
        )
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _AVRO["bytes"] if field.type == FieldDescriptor.TYPE_BYTES else _TEXT
    return _PROTOBUF[field.cpp_type]
