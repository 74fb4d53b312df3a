# SPDX-License-Identifier: Apache-2.0
"""Casts values to other types, as ``org.apache.kafka.connect.transforms.Cast`` does."""

from __future__ import annotations

import math
from base64 import b64encode
from typing import Any

import attrs

from statefun.transforms.data import (
    FLOATS,
    INTEGERS,
    LOGICAL,
    MILLIS_PER_DAY,
    MOMENTS,
    Data,
    Field,
    Moment,
    Schema,
    SchemaKind,
    TransformError,
    basics,
    description_of,
    fields_in,
    fields_of,
    number_of,
    or_default,
    required,
    struct,
)
from statefun.transforms.field_transforms import kind_of
from statefun.transforms.java_dates import DateFormat
from statefun.transforms.java_numbers import (
    parsed_float,
    parsed_integer,
    shortest,
    single,
    text_of_float,
    truncated,
    wrapped,
)
from statefun.transforms.transform import PartTransform, Record, Schemas, schema_after

CAST_KINDS = (
    *INTEGERS,
    SchemaKind.FLOAT32,
    SchemaKind.FLOAT64,
    SchemaKind.BOOLEAN,
    SchemaKind.STRING,
)
"""The kinds (schema types) that values can be cast to."""
_TAKEN = frozenset((*CAST_KINDS, SchemaKind.BYTES))


@attrs.frozen(cache_hash=True)
class Cast(PartTransform):
    """Casts fields of a key or value, or the whole key or value, to other schema types."""

    fields: tuple[tuple[str, SchemaKind], ...] = ()
    whole: SchemaKind | None = None
    replace_null_with_default: bool = True

    def schema(self, schema: Schema) -> Schema:
        """Return the schema after the casts; defaults in the schema are cast as well."""
        if self.whole is not None:
            # Connect would keep the name of dates and similar types, and then refuse the value.
            is_logical = schema.name in LOGICAL
            after = Schema(self.whole) if is_logical else basics(schema, self.whole)
            default = cast(Data(schema, schema.default), self.whole)
            return attrs.evolve(after, is_optional=schema.is_optional, default=default)
        fields_in(schema, "Cast")
        after = struct(
            schema, (Field(name, self._field(name, each)) for name, each in schema.fields)
        )
        return attrs.evolve(after, is_optional=schema.is_optional)

    def check(self, schemas: Schemas) -> None:
        """Check that values of the schema can be cast; replace the schema by the schema after the casts."""
        schema = schemas.of(self.part)
        if schema is not None:
            to_cast = (
                [schema]
                if self.whole is not None
                else [each for name, each in schema.fields if name in dict(self.fields)]
            )
            for each in to_cast:
                if each.kind not in _TAKEN:
                    raise TransformError(
                        f"{description_of(Data(each, 0))} cannot be cast to another type"
                    )
        super().check(schemas)

    def changed(self, data: Data, record: Record) -> Data:
        """Cast the fields, or the whole key or value."""
        del record
        schema, value = data
        if value is None:
            return data
        after = None if schema is None else schema_after(self, schema)
        if self.whole is not None:
            return Data(after, cast(data, self.whole))
        before = fields_of(data, "Cast")
        if schema is None or after is None:
            cast_fields = {
                name: _named(name, Data(None, before.get(name)), kind) for name, kind in self.fields
            }
            return Data(None, before | cast_fields)
        kinds, values = dict(self.fields), {}
        for (name, each), (_, new) in zip(schema.fields, after.fields, strict=True):
            field = or_default(each, before[name], replaced=self.replace_null_with_default)
            if name in kinds:
                field = _named(name, Data(each, field), kinds[name])
            values[name] = required(name, new, field)
        return Data(after, values)

    def _field(self, name: str, schema: Schema) -> Schema:
        kind = dict(self.fields).get(name)
        if kind is None:
            return schema
        default = _named(name, Data(schema, schema.default), kind)
        return Schema(kind, schema.is_optional, default=default)


def _named(name: str, data: Data, kind: SchemaKind) -> Any:
    """Cast the value of a field; if it fails, the error names the field."""
    try:
        return cast(data, kind)
    except TransformError as error:
        raise TransformError(f"field {name!r}: {error}") from None


def cast(data: Data, kind: SchemaKind) -> Any:
    """Cast a value to another kind (schema type); null stays null.

    Raises:
        TransformError: if the value cannot be cast.
    """
    schema, value = data
    if value is None:
        return None
    if kind_of(data) not in _TAKEN and not isinstance(value, Moment):
        raise TransformError(f"{description_of(data)} cannot be cast to {kind.value}")
    if kind is SchemaKind.STRING:
        return _text(schema, value)
    if isinstance(value, Moment):
        if schema is None or schema.name not in MOMENTS:
            raise TransformError(f"a date or time cannot be cast to {kind.value}")
        value = number_of(schema, value)
    try:
        number = _number(value, kind)
    except ValueError as error:
        raise TransformError(
            f"{description_of(data)} cannot be cast to {kind.value}: {error}"
        ) from None
    except TypeError:
        raise TransformError(f"{description_of(data)} cannot be cast to {kind.value}") from None
    if schema is None and kind in FLOATS and not math.isfinite(number):
        raise TransformError(
            f"{description_of(data)} cannot be cast to {kind.value}: JSON cannot represent {number}"
        )
    # Without a schema, the encoder would write the digits of 64 bits.
    return shortest(number) if kind is SchemaKind.FLOAT32 and schema is None else number


def _number(value: Any, kind: SchemaKind) -> Any:
    if isinstance(value, bytes):
        raise TypeError  # Python would parse their digits; Connect does not
    if kind is SchemaKind.BOOLEAN:
        if isinstance(value, str):
            return value.lower() == "true"
        return (
            truncated(value, 64) != 0 if isinstance(value, float) else wrapped(int(value), 64) != 0
        )
    bits = INTEGERS.get(kind)
    if bits is None:
        number = parsed_float(value) if isinstance(value, str) else float(value)
        return single(number) if kind is SchemaKind.FLOAT32 else number
    if isinstance(value, str):
        return parsed_integer(value, bits)
    if isinstance(value, float):
        return truncated(value, bits)
    return wrapped(int(value), bits)


def _text(schema: Schema | None, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        is_single = schema is not None and schema.kind is SchemaKind.FLOAT32
        return text_of_float(value, is_single=is_single)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Moment):
        return _FORMATS[_format_of(value.millis)].format(value.millis)
    return str(value)


_FORMATS = (
    DateFormat("HH:mm:ss.SSS'Z'"),
    DateFormat("yyyy-MM-dd"),
    DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
)
"""Connect's formats of moments: before 1970-01-02 the time, at a later midnight the date, otherwise both."""


def _format_of(millis: int) -> int:
    if millis < MILLIS_PER_DAY:
        return 0
    return 2 if millis % MILLIS_PER_DAY else 1
