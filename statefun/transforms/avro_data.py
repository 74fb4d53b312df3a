# SPDX-License-Identifier: Apache-2.0
"""Converts schemas of Avro to schemas of Connect's model, and back.

Connect's model cannot express some details of Avro schemas, such as the symbols of an enumeration or the
types of a union; no transform changes these details. A parameter of the Connect schema keeps the Avro
schema, so that the conversion back restores the details. Decimal numbers, dates, and times and timestamps
in milliseconds become objects (Decimal or Moment); values of Avro's other logical types stay numbers,
texts or bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import attrs

from statefun.transforms.data import (
    CONNECT_DATE,
    CONNECT_DECIMAL,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    LOGICAL,
    OPAQUE,
    Field,
    Schema,
    SchemaKind,
    TransformError,
    bytes_of,
    decimal_of,
    moment_of,
    number_of,
)

_DEFAULT = "avro.default"
"""The name of the parameter that keeps a field's default, as JSON, if Connect lacks the field's Avro type."""
_PRIMITIVES = {
    "int": SchemaKind.INT32,
    "long": SchemaKind.INT64,
    "float": SchemaKind.FLOAT32,
    "double": SchemaKind.FLOAT64,
    "boolean": SchemaKind.BOOLEAN,
    "string": SchemaKind.STRING,
    "bytes": SchemaKind.BYTES,
}
_OF_KIND = {kind: name for name, kind in _PRIMITIVES.items()} | {
    SchemaKind.INT8: "int",
    SchemaKind.INT16: "int",
}
_KINDS = _PRIMITIVES | {
    "enum": SchemaKind.STRING,
    "fixed": SchemaKind.BYTES,
    "array": SchemaKind.ARRAY,
    "map": SchemaKind.MAP,
}
_LOGICAL = {
    ("int", "date"): CONNECT_DATE,
    ("int", "time-millis"): CONNECT_TIME,
    ("long", "timestamp-millis"): CONNECT_TIMESTAMP,
}
_NAMED = {"record", "error", "enum", "fixed"}
_UNNAMED = "ConnectDefault"
"""The name that replaces a missing name of a Connect schema, since Avro requires names of record types."""


def schema_of_avro(text: str) -> Schema:
    """Convert an Avro schema, given as JSON text, to a schema of Connect's model.

    Raises:
        TransformError: if the schema is recursive.
    """
    return _schema(_inlined(json.loads(text), {}, "", ()))


def _inlined(
    avro: Any, named_types: dict[str, Any], namespace: str, inside: tuple[str, ...]
) -> Any:
    """Replace each reference to a named Avro type by the definition of the type."""
    if isinstance(avro, str):
        full = (
            avro if "." in avro or avro in _PRIMITIVES or avro == "null" else _full(avro, namespace)
        )
        full = full if full in named_types else avro
        if full in inside:
            raise TransformError(
                f"the schema of {full} is recursive: it contains itself; transforms do not support "
                "recursive schemas"
            )
        return named_types.get(full, avro)
    if isinstance(avro, list):
        return [_inlined(each, named_types, namespace, inside) for each in avro]
    type_ = avro["type"]
    if not isinstance(type_, str) or type_ not in {*_KINDS, *_NAMED}:
        # The type is itself a schema, such as {"type": {"type": "string"}} or {"type": "null"}.
        inner = _inlined(type_, named_types, namespace, inside)
        rest = {name: each for name, each in avro.items() if name != "type"}
        return {**inner, **rest} if isinstance(inner, dict) else inner
    inlined = dict(avro)
    if type_ in _NAMED:
        full = _full(inlined["name"], inlined.pop("namespace", namespace))
        namespace = full.rpartition(".")[0]
        inlined["name"] = full
        named_types[full] = inlined
        inside = (*inside, full)
    if "fields" in inlined:
        inlined["fields"] = [
            {**field, "type": _inlined(field["type"], named_types, namespace, inside)}
            for field in inlined["fields"]
        ]
    for part in ("items", "values"):
        if part in inlined:
            inlined[part] = _inlined(inlined[part], named_types, namespace, inside)
    return inlined


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _schema(avro: Any) -> Schema:
    if isinstance(avro, list):
        others = [each for each in avro if each != "null"]
        one = _schema(others[0]) if len(others) == 1 else _opaque(SchemaKind.UNION, others)
        return attrs.evolve(one, is_optional="null" in avro)
    if isinstance(avro, str) and avro in _PRIMITIVES:
        return Schema(_PRIMITIVES[avro])
    return _schema_of_type(avro) if isinstance(avro, dict) else _NULL


def _schema_of_type(avro: Mapping[str, Any]) -> Schema:
    type_ = avro["type"]
    if type_ in {"record", "error"}:
        fields = tuple(Field(each["name"], _field(each)) for each in avro["fields"])
        return Schema(SchemaKind.STRUCT, name=avro["name"], doc=avro.get("doc"), fields=fields)
    name = _LOGICAL.get((type_, avro.get("logicalType", "")))
    if name is not None:
        return Schema(_PRIMITIVES[type_], name=name, version=1)
    opaque = _opaque(_KINDS[type_], avro)
    if avro.get("logicalType") == "decimal":
        parameters = (("scale", str(avro.get("scale", 0))), *opaque.parameters)
        return attrs.evolve(opaque, name=CONNECT_DECIMAL, version=1, parameters=parameters)
    return Schema(opaque.kind) if set(avro) == {"type"} else opaque


def _opaque(kind: SchemaKind, avro: Any) -> Schema:
    return Schema(kind, parameters=((OPAQUE, json.dumps(avro)),))


_NULL = attrs.evolve(_opaque(SchemaKind.UNION, "null"), is_optional=True)


def _field(avro: Mapping[str, Any]) -> Schema:
    schema = _schema(avro["type"])
    default = avro.get("default")
    if schema.kind is SchemaKind.STRUCT:
        return schema
    schema = attrs.evolve(schema, doc=avro.get("doc"))
    if default is None:
        return schema
    if schema.parameters:
        # The JSON of the default, from which the field is written again.
        parameters = (*schema.parameters, (_DEFAULT, json.dumps(default)))
        return attrs.evolve(schema, parameters=parameters)
    if schema.kind is SchemaKind.BYTES:
        default = default.encode("latin-1")
    return attrs.evolve(schema, default=logical(schema, default))


def avro_of_schema(schema: Schema) -> str:
    """Convert a schema of Connect's model to an Avro schema, as JSON text.

    Raises:
        TransformError: if two different record types have the same name.
    """
    return json.dumps(_named_once(_avro(schema, iter(_unnamed())), {}))


def _unnamed() -> Iterator[str]:
    yield _UNNAMED
    number = 1
    while True:
        number += 1
        yield f"{_UNNAMED}{number}"


def _avro(schema: Schema, names: Iterator[str]) -> Any:
    avro = _required(schema, names)
    if not schema.is_optional or avro == "null":
        return avro
    others = avro if isinstance(avro, list) else [avro]
    others = [each for each in others if each != "null"]
    # The default of a union has the first type of the union.
    has_default = schema.default is not None or _DEFAULT in dict(schema.parameters)
    return [*others, "null"] if has_default else ["null", *others]


def _required(schema: Schema, names: Iterator[str]) -> Any:
    parameters = dict(schema.parameters)
    if schema.kind is SchemaKind.STRUCT:
        extra: dict[str, Any] = {} if schema.doc is None else {"doc": schema.doc}
        if schema.version is not None:
            extra["connect.version"] = schema.version
        name = schema.name or next(names)
        fields = [_avro_field(field, names) for field in schema.fields]
        return {"type": "record", "name": name, "fields": fields, **extra}
    if OPAQUE in parameters:
        return json.loads(parameters[OPAQUE])
    for (type_, logical_type), name in _LOGICAL.items():
        if schema.name == name:
            return {"type": type_, "logicalType": logical_type}
    return _OF_KIND[schema.kind]


def _avro_field(field: Field, names: Iterator[str]) -> dict[str, Any]:
    name, schema = field
    avro: dict[str, Any] = {"name": name, "type": _avro(schema, names)}
    default, parameters = schema.default, dict(schema.parameters)
    if schema.doc is not None and schema.kind is not SchemaKind.STRUCT:
        avro["doc"] = schema.doc
    if default is None and _DEFAULT in parameters:
        avro["default"] = json.loads(parameters[_DEFAULT])
    elif default is not None and schema.kind is not SchemaKind.STRUCT:
        default = encodable(schema, default)
        avro["default"] = default.decode("latin-1") if isinstance(default, bytes) else default
    elif schema.is_optional:
        avro["default"] = None
    return avro


def _named_once(avro: Any, definitions: dict[str, Any]) -> Any:
    """Keep the first definition of each named Avro type, and replace later definitions by the type's name."""
    if isinstance(avro, list):
        return [_named_once(each, definitions) for each in avro]
    if not isinstance(avro, dict):
        return avro
    if avro.get("type") in _NAMED:
        name = avro["name"]
        if name in definitions:
            if definitions[name] != avro:
                raise TransformError(
                    f"the schema after the transforms has two different types with the name {name}; "
                    "set another name for one of them with SetSchemaMetadata"
                )
            return name
        definitions[name] = avro
    short = dict(avro)
    if "fields" in short:
        short["fields"] = [
            {**each, "type": _named_once(each["type"], definitions)} for each in short["fields"]
        ]
    for part in ("items", "values"):
        if part in short:
            short[part] = _named_once(short[part], definitions)
    return short


@lru_cache(maxsize=1024)
def without_logical_types(text: str) -> str:
    """Remove the logical types from an Avro schema, so that moments and decimals are numbers and bytes."""
    return json.dumps(_bare(json.loads(text)))


def _bare(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_bare(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    return {
        name: _bare(each) if name in {"type", "fields", "items", "values"} else each
        for name, each in avro.items()
        if name != "logicalType"
    }


@lru_cache(maxsize=1024)
def _has_logical(schema: Schema) -> bool:
    """Return whether values with a schema are, or contain in their fields, moments or decimal numbers."""
    if schema.kind is SchemaKind.STRUCT:
        return any(_has_logical(each) for _, each in schema.fields)
    return schema.name in LOGICAL


def logical(schema: Schema, value: Any) -> Any:
    """Convert encoded moments and decimal numbers in a value to objects of the classes Moment and Decimal."""
    if value is None or not _has_logical(schema):
        return value
    if schema.kind is SchemaKind.STRUCT:
        return {name: logical(each, value[name]) for name, each in schema.fields}
    return decimal_of(schema, value) if schema.name == CONNECT_DECIMAL else moment_of(schema, value)


def encodable(schema: Schema, value: Any) -> Any:
    """Convert the moments and decimal numbers in a value to the numbers and bytes that encode them.

    Raises:
        TransformError: as for :func:`number_of` and :func:`bytes_of`.
        ArithmeticError: as for :func:`bytes_of`.
    """
    if value is None or not _has_logical(schema):
        return value
    if schema.kind is SchemaKind.STRUCT:
        return {name: encodable(each, value[name]) for name, each in schema.fields}
    if schema.name == CONNECT_DECIMAL:
        return bytes_of(schema, value, json.loads(dict(schema.parameters)[OPAQUE]).get("size"))
    return number_of(schema, value)
