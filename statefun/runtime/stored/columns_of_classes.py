# SPDX-License-Identifier: Apache-2.0
"""Columns for values that an annotation describes: classes with fields, lists, dicts and single values."""

from __future__ import annotations

import enum
import json
import types
from collections import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin
from uuid import UUID

import pyarrow as pa

from statefun.sdk.fields import class_hints, field_names, has_fields, is_class, is_typed_dict

_LONGS = range(-(1 << 63), 1 << 63)
_LISTS = (list, tuple, set, frozenset, abc.Sequence, abc.Set, abc.Collection)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
MOMENT = pa.timestamp("us", tz="UTC")


def as_it_is(value: Any) -> Any:
    """Return the value unchanged, for columns whose values need no conversion."""
    return value


class Column(NamedTuple):
    """The type of a column, and how values of a program become cells of the column, and cells values."""

    type: pa.DataType
    convert: Callable[[Any], Any]
    """Converts a value of a program to a cell."""
    restore: Callable[[Any], Any] = as_it_is
    """Converts a cell to the form in which the value's type reads it, such as the parts of a JSON document.

    A cell of another type than the column's, such as that of a table from elsewhere, is returned unchanged, or is an
    error."""


def json_text(value: Any) -> str:
    """Return any value as JSON text: for values that no column of Spark can have."""
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json())
    import msgspec  # noqa: PLC0415 - only needed for such values

    return msgspec.json.encode(value, enc_hook=_plain, order="deterministic").decode()


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def json_parts(cell: Any) -> Any:
    """Return what a cell with JSON text stands for; other cells are already what they stand for."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except ValueError as error:
        raise ValueError(
            f"the text {cell!r} is not JSON, which its column must have ({error}); a text in JSON is in quotes"
        ) from error


JSON = Column(pa.string(), json_text, json_parts)


def _long(value: Any) -> int:
    if value not in _LONGS:
        raise ValueError(f"the number {value} has more than 64 bits")
    return int(value)


def utc(value: Any) -> Any:
    """Return a date and time with the time zone UTC; one without a time zone is taken as UTC."""
    return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value


_SINGLE: Mapping[Any, Column] = {
    bool: Column(pa.bool_(), as_it_is),
    int: Column(pa.int64(), _long),
    float: Column(pa.float64(), float),
    str: Column(pa.string(), str),
    bytes: Column(pa.binary(), bytes),
    bytearray: Column(pa.binary(), bytes),
    datetime: Column(MOMENT, utc),
    date: Column(pa.date32(), as_it_is),
    Decimal: Column(pa.string(), str),
    UUID: Column(pa.string(), str),
}


def column_of_annotation(  # noqa: PLR0911 - one for each kind of annotations
    annotation: Any, within: tuple[Any, ...] = ()
) -> Column:
    """Return the column for the values of an annotation; the values are JSON text if nothing else fits.

    Args:
        annotation: the annotation.
        within: the classes that contain it, to find classes that contain themselves.

    >>> column_of_annotation(list[int]).type
    ListType(list<item: int64>)
    >>> column_of_annotation(int | None).convert(None) is None
    True
    """
    if annotation in within:
        return JSON
    origin, arguments = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__supertype__"):  # a NewType
        return column_of_annotation(annotation.__supertype__, within)
    if hasattr(annotation, "__metadata__"):  # Annotated
        return column_of_annotation(arguments[0], within)
    if annotation in _SINGLE:
        return _SINGLE[annotation]
    for origins, make in _GENERIC:
        if origin in origins:
            return make(origin, arguments, within)
    if is_class(annotation) and issubclass(annotation, enum.Enum):
        members = {str(each.value): each for each in annotation}
        return Column(
            pa.string(), lambda value: str(value.value), lambda cell: members.get(cell, cell)
        )
    return _of_fields(annotation, within)


def optional(column: Column) -> Column:
    """Return a column that also takes None."""
    return Column(
        column.type,
        lambda value: None if value is None else column.convert(value),
        lambda cell: None if cell is None else column.restore(cell),
    )


def struct_column(
    columns: Mapping[str, Column],
    get: Callable[[Any, str], Any],
    make: Callable[[dict[str, Any]], Any] = as_it_is,
) -> Column:
    """Return a column of structs.

    Args:
        columns: the fields' columns, by their names.
        get: returns a field of a value, given its name.
        make: returns a value, given the restored values of fields, by name.
    """
    fields = {name: optional(column) for name, column in columns.items()}

    def restore(cell: Any) -> Any:
        if not isinstance(cell, Mapping):
            return cell
        known = {
            name: column.restore(cell[name]) for name, column in fields.items() if name in cell
        }
        return make({**known, **{name: cell[name] for name in cell if name not in known}})

    return Column(
        pa.struct([pa.field(name, column.type) for name, column in fields.items()]),
        lambda value: {name: column.convert(get(value, name)) for name, column in fields.items()},
        restore,
    )


def list_column(item: Column) -> Column:
    """Return a column of lists."""
    item = optional(item)
    return Column(
        pa.list_(item.type),
        lambda value: [item.convert(each) for each in value],
        lambda cell: [item.restore(each) for each in cell] if isinstance(cell, list) else cell,
    )


def map_column(key: Column, value: Column) -> Column:
    """Return a column of maps."""
    value = optional(value)

    def restore(cell: Any) -> Any:
        if not isinstance(cell, Mapping):
            return cell
        return {key.restore(name): value.restore(each) for name, each in cell.items()}

    return Column(
        pa.map_(key.type, value.type),
        lambda values: {
            key.convert(name): value.convert(each) for name, each in dict(values).items()
        },
        restore,
    )


def _of_union(_: Any, members: tuple[Any, ...], within: tuple[Any, ...]) -> Column:
    others = [each for each in members if each not in {None, type(None)}]
    column = column_of_annotation(others[0], within) if len(others) == 1 else JSON
    return optional(column)


def _of_list(origin: Any, arguments: tuple[Any, ...], within: tuple[Any, ...]) -> Column:
    items = [each for each in arguments if each is not Ellipsis]
    if not items or (origin is tuple and len(set(items)) > 1):
        return JSON
    return list_column(column_of_annotation(items[0], within))


def _of_literal(_: Any, values: tuple[Any, ...], _within: tuple[Any, ...]) -> Column:
    kinds = {type(each) for each in values}
    return _SINGLE.get(next(iter(kinds)), JSON) if len(kinds) == 1 else JSON


def _of_dict(_: Any, arguments: tuple[Any, ...], within: tuple[Any, ...]) -> Column:
    if len(arguments) != 2:  # noqa: PLR2004 - of keys and values
        return JSON
    key = column_of_annotation(arguments[0], within)
    if key.type not in {pa.string(), pa.int64()}:
        return JSON
    return map_column(key, column_of_annotation(arguments[1], within))


_GENERIC: Sequence[tuple[Collection[Any], Callable[..., Column]]] = (
    ((Union, types.UnionType), _of_union),
    ((Literal,), _of_literal),
    (_LISTS, _of_list),
    (_DICTS, _of_dict),
)
"""By the origins of annotations with arguments, such as ``list[int]``: the function that makes the column."""


def _of_fields(class_: Any, within: tuple[Any, ...]) -> Column:
    if not (has_fields(class_) or is_typed_dict(class_)):
        return JSON
    try:
        hints = class_hints(class_)
    except Exception:  # noqa: BLE001 - evaluating annotations may run any code
        return JSON
    names = field_names(class_)
    if names is None:  # for a model of Pydantic's, or a TypedDict
        names = list(getattr(class_, "model_fields", hints))
    if not names:
        return JSON
    columns = {
        name: column_of_annotation(hints.get(name, Any), (*within, class_)) for name in names
    }
    return struct_column(columns, _field, _maker(class_, hints, columns))


def _maker(
    class_: Any, hints: Mapping[str, Any], columns: Mapping[str, Column]
) -> Callable[[dict[str, Any]], Any]:
    """Return a function that gives the fields of a value the form in which msgspec and Pydantic read the class."""
    if is_typed_dict(class_):
        missing = {
            name
            for name, hint in hints.items()
            if name not in class_.__required_keys__ or "NotRequired" in str(get_origin(hint))
        }
        return lambda fields: {
            name: each for name, each in fields.items() if each is not None or name not in missing
        }
    if hasattr(class_, "__struct_config__"):  # of msgspec
        names = dict(zip(class_.__struct_fields__, class_.__struct_encode_fields__, strict=True))
        if not class_.__struct_config__.array_like:
            return lambda fields: {names.get(name, name): each for name, each in fields.items()}
        tag = class_.__struct_config__.tag
        return lambda fields: [
            *([] if tag is None else [tag]),
            *_in_order(class_, columns, fields),
        ]
    if issubclass(class_, tuple):
        return lambda fields: _in_order(class_, columns, fields)
    return as_it_is


def _in_order(
    class_: Any, columns: Mapping[str, Column], fields: Mapping[str, Any]
) -> Sequence[Any]:
    """Return the values of fields in the order in which the class declares them, as a list has no names.

    Args:
        class_: the class.
        columns: the columns of its fields, in their order.
        fields: the restored values of fields, by name; a field that is not there has its default.

    Raises:
        ValueError: if a field without a default is not there, or one is there that the class does not have.
    """
    if list(fields) == list(columns):
        return [*fields.values()]
    defaults = _defaults(class_)
    unknown = [name for name in fields if name not in columns]
    missing = [name for name in columns if name not in fields and name not in defaults]
    if unknown or missing:
        problems = [f"unknown field {name!r}" for name in unknown]
        problems += [f"missing required field {name!r}" for name in missing]
        raise ValueError(
            f"a value of {class_.__name__} has the fields {', '.join(columns)}; {', '.join(problems)}"
        )
    last = max((at for at, name in enumerate(columns) if name in fields), default=-1)
    values = []
    for name, column in [*columns.items()][: last + 1]:  # the class's reader adds further defaults
        if name in fields:
            values.append(fields[name])
        else:
            whole = optional(column)
            values.append(whole.restore(whole.convert(defaults[name]())))
    return values


@cache
def _defaults(class_: Any) -> Mapping[str, Callable[[], Any]]:
    """Return functions that make the defaults of a NamedTuple's or a struct's fields, by the fields that have one."""
    if issubclass(class_, tuple):
        return {name: partial(as_it_is, each) for name, each in class_._field_defaults.items()}
    import msgspec  # noqa: PLC0415 - only needed for such classes

    return {
        field.name: partial(as_it_is, field.default)
        if field.default_factory is msgspec.NODEFAULT
        else field.default_factory
        for field in msgspec.structs.fields(class_)
        if not field.required
    }


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name)
