# SPDX-License-Identifier: Apache-2.0
"""Values and their schemas, in the model of Kafka Connect.

Names and meanings are those of the package ``org.apache.kafka.connect.data``.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from enum import Enum
from typing import Any, NamedTuple

import attrs


class TransformError(ValueError):
    """A record or a schema is none that a transform can take."""


class Kind(Enum):
    """The type of a schema."""

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
    """Of several types; not one of Connect's. No transform looks into it."""


INTEGERS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
"""The kinds of whole numbers, with their bits."""
FLOATS = frozenset({Kind.FLOAT32, Kind.FLOAT64})

DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
MOMENTS = frozenset({DATE, TIME, TIMESTAMP})
"""The names of schemas whose values are moments."""
OPAQUE = "avro"
"""The parameter that holds an Avro schema which has no counterpart, such as one with symbols."""
LOGICAL = MOMENTS | {DECIMAL}
"""The names of schemas whose values are not of their kind."""


MILLIS_PER_DAY = 24 * 60 * 60 * 1000


class Moment:
    """A point in time, as ``java.util.Date``: the value of a date, a time of day or a timestamp."""

    # Encoders of JSON know tuples and classes of attrs, and would not ask what it is.
    __slots__ = ("millis",)

    def __init__(self, millis: int) -> None:
        self.millis = millis
        """Milliseconds since the epoch."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and self.millis == other.millis

    def __hash__(self) -> int:
        return hash(self.millis)

    def __repr__(self) -> str:
        return f"Moment({self.millis})"


def number_of(schema: Schema, moment: Moment) -> int:
    """Return the number that stands for a date, a time of day or a timestamp: days or milliseconds.

    Raises:
        TransformError: if a date has a time of day, or the other way round.
    """
    millis = moment.millis
    if schema.name == DATE:
        if millis % MILLIS_PER_DAY:
            raise TransformError("a date has a time of day")
        return millis // MILLIS_PER_DAY
    if schema.name == TIME and not 0 <= millis <= MILLIS_PER_DAY:
        raise TransformError("a time of day has a date")
    return millis


def moment_of(schema: Schema, number: int) -> Moment:
    """Return the date, time of day or timestamp that a number stands for."""
    return Moment(number * MILLIS_PER_DAY if schema.name == DATE else number)


_MAX_SCALE = 1000
_MOST_DIGITS = 10_000
_MOST_BYTES = 4_154
"""Those of so many digits. The time of a conversion grows with their square."""
_EXACTLY = Context(prec=_MOST_DIGITS, traps=[Inexact, InvalidOperation, Overflow])
"""Computes with decimal numbers without rounding."""


def scale_of(schema: Schema) -> int:
    """Return how many decimals the decimal numbers of a schema have.

    Raises:
        TransformError: if the schema does not say it.
    """
    try:
        scale = int(dict(schema.parameters)["scale"])
    except (KeyError, ValueError):
        raise TransformError("the schema of a decimal number has no scale") from None
    if abs(scale) > _MAX_SCALE:
        raise TransformError(f"the scale of a decimal number is {scale}")
    return scale


def decimal_of(schema: Schema, content: bytes) -> Decimal:
    """Return the decimal number that bytes stand for: its digits, as a whole number.

    Raises:
        TransformError: if it has too many digits.
    """
    if len(content) > _MOST_BYTES:
        raise _too_long()
    return _EXACTLY.scaleb(Decimal(int.from_bytes(content, "big", signed=True)), -scale_of(schema))


def bounded(number: Decimal) -> Decimal:
    """Return a decimal number with which can be computed.

    >>> bounded(Decimal("1e100000000"))
    Traceback (most recent call last):
    ...
    statefun.transforms.data.TransformError: a decimal number has more than 10,000 digits

    Raises:
        TransformError: if it has too many digits.
    """
    _, digits, exponent = number.as_tuple()
    if len(digits) > _MOST_DIGITS or not isinstance(exponent, int) or abs(exponent) > _MOST_DIGITS:
        raise _too_long()
    return number


def _too_long() -> TransformError:
    return TransformError(f"a decimal number has more than {_MOST_DIGITS:,} digits")


def bytes_of(schema: Schema, number: Decimal, size: int | None = None) -> bytes:
    """Return the bytes that stand for a decimal number; ``size`` of them, or as many as it needs.

    Raises:
        TransformError: if it has more decimals than its schema.
        ArithmeticError: if it has too many digits.
    """
    shifted = _EXACTLY.scaleb(number, scale_of(schema))
    unscaled = int(shifted)
    if unscaled != shifted:
        raise TransformError("a decimal number has more decimals than its schema")
    return unscaled.to_bytes(size or (unscaled.bit_length() + 8) // 8, "big", signed=True)


class Field(NamedTuple):
    """A field of a struct."""

    name: str
    schema: Schema


@attrs.frozen(cache_hash=True)
class Schema:
    """The schema of values.

    Values of structs are dictionaries with all fields, those of maps dictionaries by key.
    """

    kind: Kind
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
        """Return the field of that name."""
        return next((field for field in self.fields if field.name == name), None)


class Data(NamedTuple):
    """A key or a value, with its schema if it has one."""

    schema: Schema | None
    value: Any


NOTHING = Data(None, None)
STRING = Schema(Kind.STRING)
OPTIONAL_STRING = Schema(Kind.STRING, is_optional=True)


def struct(like: Schema | None, fields: Iterable[Field]) -> Schema:
    """Return the schema of a struct: the name and so on of ``like``, and other fields.

    Raises:
        TransformError: if two fields have one name.
    """
    found: dict[str, Field] = {}
    for field in fields:
        if field.name in found:
            raise TransformError(f"there are two fields {field.name!r}")
        found[field.name] = field
    bare = basics(like, Kind.STRUCT) if like else Schema(Kind.STRUCT)
    return attrs.evolve(bare, fields=tuple(found.values()))


def basics(schema: Schema, kind: Kind | None = None) -> Schema:
    """Return a required schema with the name, version, documentation and parameters of another."""
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
    """Return the value of a field.

    Raises:
        TransformError: if it is null and may not be.
    """
    if value is None and not schema.is_optional:
        raise TransformError(f"field {name!r} is null, and is required")
    return value


def or_default(schema: Schema, value: Any, *, replaced: bool) -> Any:
    """Return a value; the default of its schema in the place of null, if that is to be ``replaced``."""
    return schema.default if value is None and replaced else value


def copied(field: Field, value: Any, *, replaced: bool) -> Any:
    """Return the value of a field; its default in the place of null, if that is to be ``replaced``.

    Raises:
        TransformError: if it is null and may not be.
    """
    return required(field.name, field.schema, or_default(field.schema, value, replaced=replaced))


def fields_in(schema: Schema, purpose: str) -> tuple[Field, ...]:
    """Return the fields of a struct.

    Raises:
        TransformError: if the schema is of something else.
    """
    if schema.kind is not Kind.STRUCT:
        raise TransformError(
            f"{purpose} needs an object with fields, and not {found(Data(schema, 0))}"
        )
    return schema.fields


def fields_of(data: Data, purpose: str) -> dict[str, Any]:
    """Return the fields of an object: of a struct, or of a map without a schema.

    Raises:
        TransformError: if it is neither.
    """
    schema, value = data
    is_struct = schema is None or schema.kind is Kind.STRUCT
    if not (is_struct and isinstance(value, dict)):
        raise TransformError(f"{purpose} needs an object with fields, and not {found(data)}")
    return value


def found(data: Data) -> str:
    """Describe data in an error text, without quoting its value."""
    schema, value = data
    if value is None:
        return "null"
    if schema is not None:
        return f"a value of type {schema.name or schema.kind.value}"
    return {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}.get(
        type(value), "a number"
    )
