# SPDX-License-Identifier: Apache-2.0
"""The model of Kafka Connect: values and their schemas.

Names have the meanings of the package ``org.apache.kafka.connect.data``.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from enum import Enum
from typing import Any, NamedTuple

import attrs

from statefun.sdk.times import from_epoch_millis


class TransformError(ValueError):
    """A transform fails on a record or a schema, or the transform's options are invalid."""


class SchemaKind(Enum):
    """The type of a schema, such as ``int32`` or ``string``."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"
    UNION = "union"
    """The kind of the values of an Avro union, which have one of several types; Connect has no such kind."""


INTEGERS = {SchemaKind.INT8: 8, SchemaKind.INT16: 16, SchemaKind.INT32: 32, SchemaKind.INT64: 64}
"""The kinds of whole numbers, each with its number of bits."""
FLOATS = frozenset({SchemaKind.FLOAT32, SchemaKind.FLOAT64})

CONNECT_DATE = "org.apache.kafka.connect.data.Date"
CONNECT_TIME = "org.apache.kafka.connect.data.Time"
CONNECT_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
MOMENTS = frozenset({CONNECT_DATE, CONNECT_TIME, CONNECT_TIMESTAMP})
"""The names of schemas whose values are moments: dates, times of day and timestamps."""
OPAQUE = "avro"
"""The name of the parameter that keeps the Avro schema of a type which Connect lacks, such as enum."""
LOGICAL = MOMENTS | {CONNECT_DECIMAL}
"""The names of schemas whose values are objects of the classes Moment or Decimal."""


MILLIS_PER_DAY = 24 * 60 * 60 * 1000


class Moment:
    """A point in time, like ``java.util.Date``: the value of a date, a time of day or a timestamp."""

    # No tuple and no class of attrs: encoders of JSON would write these without calling the hook.
    __slots__ = ("millis",)

    def __init__(self, millis: int) -> None:
        self.millis = millis
        """The moment in milliseconds since the epoch."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and self.millis == other.millis

    def __hash__(self) -> int:
        return hash(self.millis)

    def __repr__(self) -> str:
        return f"Moment({self.millis})"


def number_of(schema: Schema, moment: Moment) -> int:
    """Return the number that encodes a moment: days for a date, milliseconds for other moments.

    Raises:
        TransformError: if a date contains a time of day, or a time of day contains a date.
    """
    millis = moment.millis
    if schema.name == CONNECT_DATE:
        if millis % MILLIS_PER_DAY:
            raise TransformError(
                f"a date must not contain a time of day, but {_shown(moment)} does"
            )
        return millis // MILLIS_PER_DAY
    if schema.name == CONNECT_TIME and not 0 <= millis <= MILLIS_PER_DAY:
        raise TransformError(f"a time of day must not contain a date, but {_shown(moment)} does")
    return millis


def _shown(moment: Moment) -> str:
    try:
        return from_epoch_millis(moment.millis).isoformat()
    except OverflowError:
        return f"{moment.millis:,} ms"


def moment_of(schema: Schema, number: int) -> Moment:
    """Return the moment that a number encodes: days for a date, milliseconds for other moments."""
    return Moment(number * MILLIS_PER_DAY if schema.name == CONNECT_DATE else number)


_MAX_SCALE = 1000
_MOST_DIGITS = 10_000
_MOST_BYTES = 4_154
"""How many bytes encode a number of 10,000 digits; larger numbers would take too long to convert."""
_EXACTLY = Context(prec=_MOST_DIGITS, traps=[Inexact, InvalidOperation, Overflow])
"""A context for decimal numbers that raises an error instead of rounding."""


def scale_of(schema: Schema) -> int:
    """Return how many decimal places the decimal numbers of a schema have.

    Raises:
        TransformError: if the schema has no scale, or the scale is too large.
    """
    try:
        scale = int(dict(schema.parameters)["scale"])
    except (KeyError, ValueError):
        raise TransformError("the schema of a decimal number must have a scale") from None
    if abs(scale) > _MAX_SCALE:
        raise TransformError(
            f"the scale of a decimal number must be at most {_MAX_SCALE:,}, not {scale}"
        )
    return scale


def decimal_of(schema: Schema, content: bytes) -> Decimal:
    """Decode a decimal number: a whole number in ``content``, shifted by the scale of ``schema``.

    Raises:
        TransformError: if the number has too many digits.
    """
    if len(content) > _MOST_BYTES:
        raise _too_long()
    return _EXACTLY.scaleb(Decimal(int.from_bytes(content, "big", signed=True)), -scale_of(schema))


def bounded(number: Decimal) -> Decimal:
    """Check that a decimal number has at most 10,000 digits, and return the number.

    >>> bounded(Decimal("1e100000000"))
    Traceback (most recent call last):
    ...
    statefun.transforms.data.TransformError: a decimal number must have at most 10,000 digits

    Raises:
        TransformError: if the number has too many digits.
    """
    _, digits, exponent = number.as_tuple()
    if len(digits) > _MOST_DIGITS or not isinstance(exponent, int) or abs(exponent) > _MOST_DIGITS:
        raise _too_long()
    return number


def _too_long() -> TransformError:
    return TransformError(f"a decimal number must have at most {_MOST_DIGITS:,} digits")


def bytes_of(schema: Schema, number: Decimal, size: int | None = None) -> bytes:
    """Encode a decimal number in ``size`` bytes, or if that is None, in as few bytes as possible.

    Raises:
        TransformError: if the number has more decimal places than the schema's scale.
        ArithmeticError: if the number has too many digits.
    """
    shifted = _EXACTLY.scaleb(number, scale_of(schema))
    unscaled = int(shifted)
    if unscaled != shifted:
        raise TransformError(
            f"the decimal number {number} has more decimal places than its schema's scale allows: {scale_of(schema)}"
        )
    return unscaled.to_bytes(size or (unscaled.bit_length() + 8) // 8, "big", signed=True)


class Field(NamedTuple):
    """A field of a struct."""

    name: str
    schema: Schema


@attrs.frozen(cache_hash=True)
class Schema:
    """The schema of values.

    The value of a struct is a dictionary with the values of all fields, by name; the value of a map is a
    dictionary with the entries of the map.
    """

    kind: SchemaKind
    is_optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: Any = attrs.field(default=None, hash=False)
    fields: tuple[Field, ...] = ()
    """The fields of a struct."""
    items: Schema | None = None
    """The schema of the items of an array, or of the values of a map."""
    keys: Schema | None = None
    """The schema of the keys of a map."""

    def field(self, name: str) -> Field | None:
        """Return the field with a name; None if the schema has no such field."""
        return next((field for field in self.fields if field.name == name), None)


class Data(NamedTuple):
    """A key or value of a record, or a part of a key or value, with its schema.

    The attribute ``schema`` is None if the data has no schema.
    """

    schema: Schema | None
    value: Any


NOTHING = Data(None, None)
STRING = Schema(SchemaKind.STRING)
OPTIONAL_STRING = Schema(SchemaKind.STRING, is_optional=True)


def struct(like: Schema | None, fields: Iterable[Field]) -> Schema:
    """Return the schema of a struct with the given fields.

    Args:
        like: the schema whose name, version, documentation and parameters are copied; None to copy none.
        fields: the fields.

    Raises:
        TransformError: if two fields have the same name.
    """
    by_name: dict[str, Field] = {}
    for field in fields:
        if field.name in by_name:
            raise TransformError(f"two fields must not have the same name, {field.name!r}")
        by_name[field.name] = field
    bare = basics(like, SchemaKind.STRUCT) if like else Schema(SchemaKind.STRUCT)
    return attrs.evolve(bare, fields=tuple(by_name.values()))


def basics(schema: Schema, kind: SchemaKind | None = None) -> Schema:
    """Copy a schema's name, version, documentation and parameters to a new schema that is not optional.

    Args:
        schema: the schema.
        kind: the kind of the new schema; None to keep the kind of ``schema``, and to copy the schemas of
            items and keys, too. A parameter with an Avro schema is only copied if the kind stays.
    """
    return Schema(
        kind or schema.kind,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=tuple(
            each
            for each in schema.parameters
            if not each[0].startswith(OPAQUE) or kind in {None, schema.kind}
        ),
        items=None if kind else schema.items,
        keys=None if kind else schema.keys,
    )


def required(name: str, schema: Schema, value: Any) -> Any:
    """Check that the value of a required field is not null, and return the value.

    Raises:
        TransformError: if the value is null, and the field is required.
    """
    if value is None and not schema.is_optional:
        raise TransformError(f"field {name!r} must not be null, since it is required")
    return value


def or_default(schema: Schema, value: Any, *, replaced: bool) -> Any:
    """Return a value; instead of null, return the schema's default if ``replaced`` is set."""
    return schema.default if value is None and replaced else value


def copied(field: Field, value: Any, *, replaced: bool) -> Any:
    """Return the value of a field; instead of null, return the default if ``replaced`` is set.

    Raises:
        TransformError: if the result is null, and the field is required.
    """
    return required(field.name, field.schema, or_default(field.schema, value, replaced=replaced))


def fields_in(schema: Schema, purpose: str) -> tuple[Field, ...]:
    """Return the fields of the schema of a struct.

    Args:
        schema: the schema.
        purpose: the name of the transform that needs the fields, for the error text.

    Raises:
        TransformError: if the schema is not the schema of a struct.
    """
    if schema.kind is not SchemaKind.STRUCT:
        raise TransformError(
            f"{purpose} needs an object with fields, not {description_of(Data(schema, 0))}"
        )
    return schema.fields


def fields_of(data: Data, purpose: str) -> dict[str, Any]:
    """Return the fields of an object: a struct, or a dictionary without a schema.

    Args:
        data: the object.
        purpose: the name of the transform that needs the fields, for the error text.

    Raises:
        TransformError: if the data is neither of the two.
    """
    schema, value = data
    is_struct = schema is None or schema.kind is SchemaKind.STRUCT
    if not (is_struct and isinstance(value, dict)):
        raise TransformError(f"{purpose} needs an object with fields, not {description_of(data)}")
    return value


def description_of(data: Data) -> str:
    """Describe a key or value for error texts by its type, without showing the value itself."""
    schema, value = data
    if value is None:
        return "null"
    if schema is not None:
        return f"a value of type {schema.name or schema.kind.value}"
    return {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}.get(
        type(value), "a number"
    )
