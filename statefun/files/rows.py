# SPDX-License-Identifier: Apache-2.0
"""Records as rows of Parquet files: checks the values of columns, and makes tables of many records.

A record is checked alone, when a function sends it. Later pyarrow reads a table from the bytes of many
records, when it is too late to refuse a record. So the check accepts only values that pyarrow reads.
"""

from __future__ import annotations

import json
import re
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
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)


Check = Callable[[object, str], None]
"""Checks a value that is not null; the second argument is the path of its column, for messages."""


def parse_row(text: str) -> object:
    """Return a JSON value; its numbers keep all of their digits.

    Raises:
        ValueError: if the text is no JSON, or an object has a field twice.
        RecursionError: if the value is nested too deeply.
    """
    return json.loads(
        text, parse_float=Decimal, parse_constant=refuse_constant, object_pairs_hook=_object
    )


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python writes and JSON does not have.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is no JSON")


@attrs.frozen(slots=False)
class Columns:
    """The columns of an egress's files.

    >>> Columns(pa.schema([("n", pa.int64())])).check({"n": 2**70})
    Traceback (most recent call last):
    ...
    ValueError: column n is of type bigint, which 1180591620717411303424 is not
    """

    schema: pa.Schema

    def check(self, row: object) -> None:
        """Check that a row fits the columns; a missing field is null.

        Raises:
            ValueError: if the row does not fit.
        """
        self._check(row, "")

    def table(self, lines: Iterable[bytes]) -> pa.Table:
        """Return a table of records that :meth:`check` has accepted."""
        from pyarrow import json as arrow_json  # noqa: PLC0415 - slow to import, rarely needed

        content = b"\n".join(lines)
        fields = pa.schema([(each.name, _as_read(each.type)) for each in self.schema])
        table = arrow_json.read_json(
            pa.BufferReader(content),
            arrow_json.ReadOptions(block_size=len(content) + 1),
            arrow_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="error"),
        )
        return table.cast(self.schema)

    @cached_property
    def _check(self) -> Check:
        return _check_of(pa.struct(self.schema))


def name_of(type_: pa.DataType) -> str:
    """Return the name that a type has in module files.

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
        raise ValueError("an object has a field twice")
    return content


def _check_of(type_: pa.DataType) -> Check:
    """Return the check of the values of a type."""
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
            raise ValueError(f"there is no column {inner!a}")
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
    value_text = str(value) if isinstance(value, (int, Decimal)) else ascii(value)
    return ValueError(f"column {place} is of type {what}, which {value_text[:100]} is not")


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
    return isfinite(float(value))


def _is_decimal(type_: pa.Decimal128Type, value: object) -> bool:
    """Return whether a column can hold all digits of a number, which may be a string."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        return False
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
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
"""The types without parameters, by their names in SQL, and which JSON values fit them."""


def _as_read(type_: pa.DataType) -> pa.DataType:
    """Return the type with which pyarrow reads values of a type from JSON: it reads dates as strings."""
    if pa.types.is_struct(type_):
        return pa.struct([(each.name, _as_read(each.type)) for each in type_])
    if pa.types.is_list(type_):
        return pa.list_(_as_read(type_.value_type))
    return pa.string() if type_ == pa.date32() else type_
