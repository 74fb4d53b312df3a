# SPDX-License-Identifier: Apache-2.0
"""Makes rows of Parquet files from records: checks the values of a record, and makes tables of records.

A record is checked when a function sends it. pyarrow reads a table from the bytes of many records only
when a file is written, and then no record can be sent back to its function. So the check accepts only
values that pyarrow can read.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cached_property, partial
from math import isfinite
from typing import Any

import attrs
import pyarrow as pa

_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3}|\.[0-9]{6})?"
    r"(Z|[+-][0-9]{2}:[0-5][0-9])"
)


Check = Callable[[object, str], None]
"""A function that checks a value; its second argument is the name of the column for the error text.

It raises a ValueError if the value does not fit; it is not called for null.
"""


class _Number(Decimal):
    """A number of JSON with a fraction or an exponent, which keeps its text: a Decimal forgets leading zeros."""

    text: str

    def __new__(cls, text: str) -> _Number:  # noqa: PYI034 - Python 3.10 has no Self
        number = super().__new__(cls, text)
        number.text = text
        return number

    @property
    def written_digits(self) -> int:
        """The digits before the exponent, as Arrow counts them: without leading zeros of the whole part."""
        whole, _, fraction = self.text.lower().partition("e")[0].lstrip("-").partition(".")
        return len(whole.lstrip("0")) + len(fraction)


def parse_row(text: str) -> object:
    """Return the value of a JSON text; numbers with a fraction become Decimals, with all digits.

    Raises:
        ValueError: if the text is not JSON, or an object has a field twice.
        RecursionError: if objects and lists are nested too deeply for Python's parser.
    """
    return json.loads(
        text, parse_float=_Number, parse_constant=raise_for_constant, object_pairs_hook=_object
    )


def raise_for_constant(name: str) -> None:
    """Raise the error for NaN or Infinity in a JSON text: Python's parser accepts them, JSON does not.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is not a number of JSON")


@attrs.frozen(slots=False)
class ParquetColumns:
    """The columns of the Parquet files of an egress, with the check of their values.

    >>> ParquetColumns(pa.schema([("n", pa.int64())])).check({"n": 2**70})
    Traceback (most recent call last):
    ...
    ValueError: column n must have values of type bigint, not 1180591620717411303424
    """

    schema: pa.Schema

    def check(self, row: object) -> None:
        """Check that a row, the value of a JSON text, fits the columns; a missing field counts as null.

        Raises:
            ValueError: if the row is not an object, or a value does not fit its column.
        """
        self._check(row, "")

    def table(self, lines: Iterable[bytes]) -> pa.Table:
        """Return a table with one row for each line of JSON; :meth:`check` has accepted these lines."""
        from pyarrow import json as arrow_json  # noqa: PLC0415 - slow to import, rarely needed

        content = b"\n".join(lines)
        fields = pa.schema([(each.name, _type_in_json(each.type)) for each in self.schema])
        table = arrow_json.read_json(
            pa.BufferReader(content),
            arrow_json.ReadOptions(block_size=len(content) + 1),
            arrow_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="error"),
        )
        return table.cast(self.schema)

    @cached_property
    def encoded(self) -> str:
        """The columns as a text, from which :meth:`decoded` makes them again."""
        return base64.b64encode(self.schema.serialize().to_pybytes()).decode()

    @classmethod
    def decoded(cls, text: str) -> ParquetColumns:
        """Return the columns that :attr:`encoded` has encoded."""
        return cls(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))))

    @cached_property
    def _check(self) -> Check:
        return _check_of(pa.struct(self.schema))


def name_of(type_: pa.DataType) -> str:
    """Return the name of a column type, as module files write it.

    >>> name_of(pa.list_(pa.struct([("n", pa.decimal128(10, 2))])))
    '[{n: decimal(10,2)}]'
    """
    if pa.types.is_struct(type_):
        return "{" + ", ".join(f"{each.name}: {name_of(each.type)}" for each in type_) + "}"
    if pa.types.is_list(type_):
        return f"[{name_of(type_.value_type)}]"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return _simple(type_)[0]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an object must not have a field twice")
    return content


def _check_of(type_: pa.DataType) -> Check:
    """Return the function that checks the values of a column type."""
    if pa.types.is_struct(type_):
        return partial(_check_object, {each.name: _check_of(each.type) for each in type_})
    if pa.types.is_list(type_):
        return partial(_check_list, _check_of(type_.value_type))
    takes = partial(_is_decimal, type_) if pa.types.is_decimal(type_) else _simple(type_)[1]
    return partial(_check_single, takes, name_of(type_))


def _check_object(checks: Mapping[str, Check], value: object, place: str) -> None:
    if not isinstance(value, dict):
        raise _misfit(value, "object", place)
    for name, each in value.items():
        inner = f"{place}.{name}" if place else name
        if name not in checks:
            raise ValueError(f"the schema has no column {inner!a}")
        if each is not None:
            checks[name](each, inner)


def _check_list(check: Check, value: object, place: str) -> None:
    if not isinstance(value, list):
        raise _misfit(value, "list", place)
    for each in value:
        if each is not None:
            check(each, place)


def _check_single(takes: Callable[[object], bool], name: str, value: object, place: str) -> None:
    try:
        fits = takes(value)
    except (ValueError, ArithmeticError):  # such as for February 30th
        fits = False
    if not fits:
        raise _misfit(value, name, place)


def _misfit(value: object, what: str, place: str) -> ValueError:
    value_text = str(value) if isinstance(value, int) else ascii(value)
    if isinstance(value, _Number):
        value_text = value.text
    return ValueError(f"column {place} must have values of type {what}, not {value_text[:100]}")


def _simple(type_: pa.DataType) -> tuple[str, Callable[[object], bool]]:
    return next((name, takes) for name, (each, takes) in SIMPLE_TYPES.items() if each == type_)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.encode() or True)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


def _is_integer(bits: int, value: object) -> bool:
    return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_double(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return False
    # Arrow refuses a larger exponent even of zero.
    exponent = Decimal(value).as_tuple().exponent
    return isfinite(float(value)) and int(exponent) <= sys.float_info.max_10_exp


def _is_decimal(type_: pa.Decimal128Type, value: object) -> bool:
    """Return whether a column of decimals can hold all digits of a number; the number may be a string."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        return False
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return False
    # Arrow refuses 0.0012E2 as a decimal(3,2), since four digits are written after the point.
    if isinstance(value, _Number) and value.written_digits > type_.precision:
        return False
    _, digits, exponent = Decimal(value).as_tuple()
    whole = max(0, len(digits) + int(exponent))
    return bool(-int(exponent) <= type_.scale and whole <= type_.precision - type_.scale)


def _is_date(value: object) -> bool:
    if not (isinstance(value, str) and _DATE.fullmatch(value)):
        return False
    return bool(date.fromisoformat(value))


def _is_time(value: object) -> bool:
    if not (isinstance(value, str) and _TIME.fullmatch(value)):
        return False
    return bool(datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(timezone.utc))


SIMPLE_TYPES: Mapping[str, tuple[pa.DataType, Callable[[object], bool]]] = {
    "string": (pa.string(), _is_text),
    "boolean": (pa.bool_(), _is_boolean),
    "int": (pa.int32(), partial(_is_integer, 32)),
    "bigint": (pa.int64(), partial(_is_integer, 64)),
    "double": (pa.float64(), _is_double),
    "date": (pa.date32(), _is_date),
    "timestamp": (pa.timestamp("us", "UTC"), _is_time),
}
"""The column types without parameters, by name: the Arrow type, and a test whether a value fits."""


def _type_in_json(type_: pa.DataType) -> pa.DataType:
    """Return the type with which pyarrow reads the values of a column from JSON: dates as strings."""
    if pa.types.is_struct(type_):
        return pa.struct([(each.name, _type_in_json(each.type)) for each in type_])
    if pa.types.is_list(type_):
        return pa.list_(_type_in_json(type_.value_type))
    return pa.string() if type_ == pa.date32() else type_
