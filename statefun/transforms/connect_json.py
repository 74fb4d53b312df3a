# SPDX-License-Identifier: Apache-2.0
"""Converts schemas and values from and to the JSON of Kafka Connect's ``JsonConverter``."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import attrs

from statefun.transforms.data import (
    CONNECT_DECIMAL,
    FLOATS,
    INTEGERS,
    MOMENTS,
    OPTIONAL_STRING,
    Data,
    Field,
    Moment,
    Schema,
    SchemaKind,
    TransformError,
    bounded,
    bytes_of,
    decimal_of,
    description_of,
    moment_of,
    number_of,
)
from statefun.transforms.java_numbers import shortest, single, wrapped

_NAMES = {SchemaKind.FLOAT32: "float", SchemaKind.FLOAT64: "double"}
"""JsonConverter's names of the kinds (schema types) that have other names in Connect's model."""
_KINDS = {_NAMES.get(kind, kind.value): kind for kind in SchemaKind if kind is not SchemaKind.UNION}


def schema_of_json(content: Any) -> Schema | None:
    """Convert a schema in the JSON of JsonConverter to a schema of Connect's model; null to None.

    Raises:
        TransformError: if the JSON is not a schema.
    """
    if content is None:
        return None
    kind = _KINDS.get(str(content.get("type"))) if isinstance(content, dict) else None
    if kind is None:
        raise TransformError("a schema must be a JSON object with a valid type")
    schema = Schema(
        kind,
        content.get("optional") is True,
        _option(content, "name", str),
        _option(content, "version", int),
        _option(content, "doc", str),
        _parameters(_option(content, "parameters", dict) or {}),
        fields=tuple(map(_field, _option(content, "fields", list) or ())),
        items=schema_of_json(content.get("items" if kind is SchemaKind.ARRAY else "values")),
        keys=schema_of_json(content.get("keys")),
    )
    if kind in {SchemaKind.ARRAY, SchemaKind.MAP} and schema.items is None:
        raise TransformError(f"the schema of the {kind.value} must contain a schema of the items")
    if kind is SchemaKind.MAP and schema.keys is None:
        raise TransformError("the schema of the map must contain a schema of the keys")
    default = content.get("default")
    if default is None:
        return schema
    return attrs.evolve(schema, default=value_of_json(schema, default))


def _option(content: Mapping[str, Any], name: str, kind: type) -> Any:
    value = content.get(name)
    if not (value is None or isinstance(value, kind)):
        raise TransformError(
            f"the {name} of a schema must be of Python's type {kind.__name__}, not {value!r:.40}"
        )
    return value


def _parameters(content: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    if not all(isinstance(value, str) for value in content.values()):
        raise TransformError("a parameter of a schema must be a text")
    return tuple(content.items())


def _field(content: Any) -> Field:
    schema = schema_of_json(content)
    name = None if schema is None else _option(content, "field", str)
    if schema is None or name is None:
        raise TransformError("a field of a schema must have a name")
    return Field(name, schema)


def json_of_schema(schema: Schema | None) -> dict[str, Any] | None:
    """Convert a schema of Connect's model to the JSON of JsonConverter."""
    if schema is None:
        return None
    content: dict[str, Any] = {
        "type": _NAMES.get(schema.kind, schema.kind.value),
        "optional": schema.is_optional,
    }
    if schema.kind is SchemaKind.STRUCT:
        content["fields"] = [
            {**(json_of_schema(each) or {}), "field": name} for name, each in schema.fields
        ]
    if schema.items is not None:
        content["items" if schema.kind is SchemaKind.ARRAY else "values"] = json_of_schema(
            schema.items
        )
    if schema.keys is not None:
        content["keys"] = json_of_schema(schema.keys)
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            content[name] = getattr(schema, name)
    if schema.parameters:
        content["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        content["default"] = json_of_value(schema, schema.default)
    return content


def value_of_json(schema: Schema, content: Any) -> Any:
    """Convert the JSON of a value to a value of ``schema``; null to the default of the schema.

    Raises:
        TransformError: if the JSON does not fit the schema.
    """
    if content is None:
        if schema.default is not None or schema.is_optional:
            return schema.default
        raise TransformError("the value must not be null, since its schema is not optional")
    read = _LOGICAL_READ.get(schema.name or "", _READ.get(schema.kind))
    try:
        return content if read is None else read(schema, content)
    except TransformError:
        raise
    except (AttributeError, TypeError, ValueError):
        raise TransformError(
            f"the JSON cannot be converted to {description_of(Data(schema, 0))}"
        ) from None


def _named(name: str, schema: Schema, content: Any) -> Any:
    """Convert the JSON value of a field; if it fails, the error names the field."""
    try:
        return value_of_json(schema, content)
    except TransformError as error:
        raise TransformError(f"field {name!r}: {error}") from None


def _struct(schema: Schema, content: Any) -> dict[str, Any]:
    return {name: _named(name, each, content.get(name)) for name, each in schema.fields}


def _array(schema: Schema, content: Any) -> list[Any]:
    items = schema.items or Schema(SchemaKind.STRING)
    return [value_of_json(items, each) for each in _exactly(list, content)]


def _map(schema: Schema, content: Any) -> dict[Any, Any]:
    """Convert the JSON of a map: an object if the keys are texts, otherwise a list of pairs."""
    keys, items = schema.keys or OPTIONAL_STRING, schema.items or OPTIONAL_STRING
    if keys.kind is SchemaKind.STRING:
        return {key: value_of_json(items, value) for key, value in content.items()}
    return {value_of_json(keys, key): value_of_json(items, value) for key, value in content}


def _integer(schema: Schema, content: Any) -> int:
    if isinstance(content, bool) or not isinstance(content, int):
        raise TypeError
    if content != wrapped(content, INTEGERS[schema.kind]):
        raise TransformError(
            f"a number of type {schema.kind.value} must not have more than {INTEGERS[schema.kind]} bits"
        )
    return content


def _float(schema: Schema, content: Any) -> float:
    if isinstance(content, bool):
        raise TypeError
    number = float(_exactly(int | float | Decimal, content))
    return single(number) if schema.kind is SchemaKind.FLOAT32 else number


def _exactly(kind: Any, content: Any) -> Any:
    if not isinstance(content, kind):
        raise TypeError
    return content


def _decimal(schema: Schema, content: Any) -> Decimal:
    if isinstance(content, int | Decimal) and not isinstance(content, bool):
        return bounded(Decimal(content))
    return decimal_of(schema, b64decode(content, validate=True))


_READ: Mapping[SchemaKind, Callable[[Schema, Any], Any]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(FLOATS, _float),
    SchemaKind.BOOLEAN: lambda _, content: _exactly(bool, content),
    SchemaKind.STRING: lambda _, content: _exactly(str, content),
    SchemaKind.BYTES: lambda _, content: b64decode(content, validate=True),
    SchemaKind.STRUCT: _struct,
    SchemaKind.ARRAY: _array,
    SchemaKind.MAP: _map,
}
_LOGICAL_READ: Mapping[str, Callable[[Schema, Any], Any]] = {
    **dict.fromkeys(MOMENTS, lambda schema, content: moment_of(schema, _integer(schema, content))),
    CONNECT_DECIMAL: _decimal,
}


def json_of_value(schema: Schema | None, value: Any) -> Any:
    """Convert a value to dicts, lists, texts and numbers, which a JSON encoder accepts.

    Raises:
        TransformError: if JSON cannot represent the value, or the value is null and its schema is
            not optional.
    """
    if schema is None:
        return value.millis if isinstance(value, Moment) else value
    if value is None:
        if schema.is_optional:
            return None
        raise TransformError("the value must not be null, since its schema is not optional")
    if isinstance(value, Moment):
        return number_of(schema, value)
    if isinstance(value, Decimal):
        value = bytes_of(schema, value)
    write = _WRITTEN.get(schema.kind)
    return value if write is None else write(schema, value)


def _json_of_float(schema: Schema, value: float) -> float:
    if not math.isfinite(value):
        raise TransformError(f"JSON cannot represent the number {value}")
    return shortest(value) if schema.kind is SchemaKind.FLOAT32 else value


def _json_of_map(schema: Schema, value: Mapping[Any, Any]) -> Any:
    pairs = [
        (json_of_value(schema.keys, key), json_of_value(schema.items, each))
        for key, each in value.items()
    ]
    has_names = (
        schema.keys is None or schema.keys.kind is SchemaKind.STRING
    )  # keys of Avro have no schema
    return dict(pairs) if has_names else pairs


_WRITTEN: Mapping[SchemaKind, Callable[[Schema, Any], Any]] = {
    SchemaKind.FLOAT32: _json_of_float,
    SchemaKind.FLOAT64: _json_of_float,
    SchemaKind.BYTES: lambda _, value: b64encode(value).decode(),
    SchemaKind.STRUCT: lambda schema, value: {
        name: json_of_value(each, value[name]) for name, each in schema.fields
    },
    SchemaKind.ARRAY: lambda schema, value: [json_of_value(schema.items, each) for each in value],
    SchemaKind.MAP: _json_of_map,
}
