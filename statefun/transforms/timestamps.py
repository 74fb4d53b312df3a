# SPDX-License-Identifier: Apache-2.0
"""Converts timestamps, as ``org.apache.kafka.connect.transforms.TimestampConverter`` does."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from statefun.transforms.data import (
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    MILLIS_PER_DAY,
    MOMENTS,
    NOTHING,
    Data,
    Field,
    Moment,
    Schema,
    SchemaKind,
    TransformError,
    description_of,
    fields_in,
    fields_of,
    or_default,
    required,
    struct,
)
from statefun.transforms.java_dates import DateFormat
from statefun.transforms.java_numbers import wrapped
from statefun.transforms.transform import PartTransform, Record, Schemas, schema_after

_LONG = 64


class TimeType(Enum):
    """A representation of a timestamp: a text, Unix time, or a moment of Connect's model."""

    STRING = "string"
    UNIX = "unix"
    DATE = "Date"
    TIME = "Time"
    TIMESTAMP = "Timestamp"


class UnixPrecision(Enum):
    """The unit of Unix time."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


_PER_MILLI = {UnixPrecision.MICROSECONDS: 1000, UnixPrecision.NANOSECONDS: 1_000_000}
_SCHEMAS: Mapping[TimeType, Schema] = {
    TimeType.STRING: Schema(SchemaKind.STRING),
    TimeType.UNIX: Schema(SchemaKind.INT64),
    TimeType.DATE: Schema(SchemaKind.INT32, name=CONNECT_DATE, version=1),
    TimeType.TIME: Schema(SchemaKind.INT32, name=CONNECT_TIME, version=1),
    TimeType.TIMESTAMP: Schema(SchemaKind.INT64, name=CONNECT_TIMESTAMP, version=1),
}


@attrs.frozen(cache_hash=True)
class TimestampConverter(PartTransform):
    """Converts timestamps in a field, or in the whole key or value, to another representation."""

    target_type: TimeType
    field: str = ""
    """The name of the field to convert; if empty, the whole key or value is converted."""
    format: DateFormat | None = None
    """The format of timestamps that are texts; None if no text is read or written."""
    unix_precision: UnixPrecision = UnixPrecision.MILLISECONDS
    replace_null_with_default: bool = True

    def schema(self, schema: Schema) -> Schema:
        """Return the schema after the conversion to the target type."""
        if not self.field:
            return self._after(schema)
        fields = [
            Field(name, self._after(each)) if name == self.field else Field(name, each)
            for name, each in fields_in(schema, "TimestampConverter")
        ]
        after = attrs.evolve(struct(schema, fields), is_optional=schema.is_optional)
        if schema.default is None:
            return after
        return attrs.evolve(after, default=self._fields(schema, after, schema.default))

    def check(self, schemas: Schemas) -> None:
        """Check that the data can be a timestamp; replace the schema by the schema after the conversion."""
        schema = schemas.of(self.part)
        if schema is not None and self.field:
            field = schema.field(self.field)
            schema = None if field is None else field.schema
        if schema is not None and self._type_of(Data(schema, 0)) is TimeType.STRING:
            self._pattern()
        super().check(schemas)

    def changed(self, data: Data, record: Record) -> Data:
        """Convert the field, or the whole key or value."""
        del record
        schema, value = data
        after = None if schema is None else schema_after(self, schema)
        if not self.field:
            return Data(after, self._converted(data))
        if value is None:
            return Data(after, None)
        before = fields_of(data, "TimestampConverter")
        if schema is None or after is None:
            converted = self._named(Data(None, before.get(self.field)))
            return Data(None, before | {self.field: converted})
        return Data(after, self._fields(schema, after, before))

    def _fields(self, schema: Schema, after: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for (name, each), (_, new) in zip(schema.fields, after.fields, strict=True):
            field = or_default(each, value[name], replaced=self.replace_null_with_default)
            if name == self.field:
                field = self._named(Data(each, field))
            values[name] = required(name, new, field)
        return values

    def _after(self, schema: Schema) -> Schema:
        return attrs.evolve(_SCHEMAS[self.target_type], is_optional=schema.is_optional)

    def _named(self, data: Data) -> Any:
        """Convert the value of the field; if it fails, the error names the field."""
        try:
            return self._converted(data)
        except TransformError as error:
            raise TransformError(f"field {self.field!r}: {error}") from None

    def _converted(self, data: Data) -> Any:
        type_ = None if data == NOTHING else self._type_of(data)
        if type_ is None or data.value is None:
            return None
        try:
            return self._written(self._millis(type_, data.value))
        except TransformError:
            raise
        except ValueError as error:
            raise TransformError(f"{description_of(data)} is not a timestamp: {error}") from None

    def _type_of(self, data: Data) -> TimeType:
        schema, value = data
        if schema is not None and schema.name in MOMENTS:
            return TimeType.TIMESTAMP
        kind = None if schema is None else schema.kind
        if kind is SchemaKind.STRING or (schema is None and isinstance(value, str)):
            return TimeType.STRING
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if kind is SchemaKind.INT64 or (schema is None and is_number):
            return TimeType.UNIX
        if schema is None and isinstance(value, Moment):
            return TimeType.TIMESTAMP
        raise TransformError(f"{description_of(data)} is not a timestamp")

    def _millis(self, type_: TimeType, value: Any) -> int:
        if type_ is TimeType.STRING:
            return self._pattern().parse(value)
        if type_ is TimeType.TIMESTAMP:
            millis: int = value.millis
            return millis
        if value != wrapped(value, _LONG):
            raise ValueError("the value has more than 64 bits")
        if self.unix_precision is UnixPrecision.SECONDS:
            return _bounded(value * 1000)
        return _quotient(value, _PER_MILLI.get(self.unix_precision, 1))

    def _pattern(self) -> DateFormat:
        if self.format is None:
            raise TransformError(
                "the option format is required, since a text cannot be read or written as a timestamp without it"
            )
        return self.format

    def _written(self, millis: int) -> Any:
        match self.target_type:
            case TimeType.STRING:
                return self._pattern().format(millis)
            case TimeType.DATE:
                return Moment(millis - millis % MILLIS_PER_DAY)
            case TimeType.TIME:
                return Moment(millis % MILLIS_PER_DAY)
            case TimeType.TIMESTAMP:
                return Moment(millis)
        if self.unix_precision is UnixPrecision.SECONDS:
            return _quotient(millis, 1000)
        return _bounded(millis * _PER_MILLI.get(self.unix_precision, 1))


def _quotient(number: int, divisor: int) -> int:
    """Divide two whole numbers, and round towards zero, as Java does."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _bounded(number: int) -> int:
    """Return a number, limited to the range of 64 bits, as ``java.util.concurrent.TimeUnit`` does."""
    return max(-(1 << (_LONG - 1)), min((1 << (_LONG - 1)) - 1, number))
