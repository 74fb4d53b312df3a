# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statefun.files.file_writing import content_of
from statefun.files.rows import SIMPLE_TYPES, ParquetColumns, name_of, parse_row

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
DECIMALS = st.integers(1, 38).flatmap(
    lambda digits: st.integers(0, digits).map(lambda scale: pa.decimal128(digits, scale))
)
LEAVES = st.one_of(st.sampled_from([each for each, _ in SIMPLE_TYPES.values()]), DECIMALS)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=3,
)
SCHEMAS = st.dictionaries(NAMES, TYPES, min_size=1, max_size=3).map(
    lambda fields: pa.schema(list(fields.items()))
)
NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,40}|9{300,320})(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
)
TIMES = st.builds(
    lambda time, hours, mark: time.isoformat(mark) + hours,
    st.datetimes(),
    st.one_of(
        st.sampled_from(["", "Z", "+00:00", "-23:59", "+14:00", "+24:00"]),
        st.from_regex(r"[+-][0-2][0-9]:[0-9]{2}", fullmatch=True),
    ),
    st.sampled_from("T "),
)
TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(["\ud800", "a\udc00", "\0"]))
SMALL = st.tuples(st.integers(-1000, 1000), st.integers(0, 4)).map(
    lambda number: str(Decimal(number[0]).scaleb(-number[1]))
)
SHIFTED = st.from_regex(r"-?0\.0{0,12}[0-9]{1,3}[eE]\+?[0-9]{1,2}", fullmatch=True)
LIMITS = ["1.7976931348623157e308", "1.8e308", "1e309", "9" * 308, "9" * 309, "1e-400"]
ANYTHING = st.one_of(
    st.sampled_from(["null", "true", "NaN", "-Infinity", "1e400", "-0", "0e5", "[]", "{}"]),
    TEXTS.map(json.dumps),
    NUMBERS,
    NUMBERS.map(json.dumps),
    TIMES.map(json.dumps),
)
FITTING = {
    pa.string(): st.one_of(TEXTS.map(json.dumps), TIMES.map(json.dumps)),
    pa.bool_(): st.sampled_from(["true", "false"]),
    pa.int32(): st.integers(-(2**31) - 1, 2**31).map(str),
    pa.int64(): st.integers(-(2**63) - 1, 2**63).map(str),
    pa.float64(): st.one_of(
        st.sampled_from(LIMITS), NUMBERS, st.floats(allow_nan=False, allow_infinity=False).map(repr)
    ),
    pa.date32(): st.one_of(st.dates().map(str), st.just("2026-02-29")).map(json.dumps),
    pa.timestamp("us", "UTC"): TIMES.map(json.dumps),
}


def values(type_: pa.DataType) -> st.SearchStrategy[str]:
    """Return JSON texts, most of which fit a type."""
    if pa.types.is_struct(type_):
        return objects({each.name: each.type for each in type_})
    if pa.types.is_list(type_):
        items = st.lists(values(type_.value_type), max_size=3)
        return items.map(lambda texts: f"[{', '.join(texts)}]")
    fitting = FITTING.get(type_, st.one_of(SMALL, SMALL.map(json.dumps), NUMBERS, SHIFTED))
    return st.integers(0, 9).flatmap(lambda number: ANYTHING if number == 9 else fitting)


def objects(fields: dict[str, pa.DataType]) -> st.SearchStrategy[str]:
    """Return JSON objects with some of the fields, and sometimes with others."""
    names = st.lists(st.sampled_from([*fields]), unique=True, max_size=4)
    more = st.lists(st.sampled_from([*fields, "other"]), max_size=1)
    either = st.integers(0, 9).flatmap(lambda number: more if number == 9 else st.just([]))
    return st.tuples(names, either).flatmap(
        lambda chosen: st.tuples(*(_pair(name, fields) for name in [*chosen[0], *chosen[1]])).map(
            lambda pairs: "{" + ", ".join(pairs) + "}"
        )
    )


def _pair(name: str, fields: dict[str, pa.DataType]) -> st.SearchStrategy[str]:
    value = values(fields[name]) if name in fields else ANYTHING
    return value.map(lambda text: f"{json.dumps(name)}: {text}")


def expected(value: Any, type_: pa.DataType) -> Any:
    """Return what a reader gets for a JSON value."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {each.name: expected(value.get(each.name), each.type) for each in type_}
    if pa.types.is_list(type_):
        return [expected(each, type_.value_type) for each in value]
    readers: dict[pa.DataType, Callable[[Any], Any]] = {
        pa.float64(): float,
        pa.date32(): date.fromisoformat,
        pa.timestamp("us", "UTC"): lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    }
    return Decimal(value) if pa.types.is_decimal(type_) else readers.get(type_, type(value))(value)


def read(content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file."""
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(content)).to_pylist()
    return rows


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_accepted_can_be_read(data: st.DataObject) -> None:
    """Readers get the values of all accepted records, for any schema, alone or together."""
    schema = data.draw(SCHEMAS)
    columns, accepted, rows = ParquetColumns(schema), list[bytes](), list[Any]()
    for text in data.draw(st.lists(objects({each.name: each.type for each in schema}), max_size=5)):
        try:
            row = parse_row(text)
            columns.check(row)
            line = text.encode()
        except (ValueError, ArithmeticError, RecursionError):
            continue
        accepted.append(line)
        rows.append(row)

    if accepted:
        assert read(content_of(accepted, columns)) == [
            expected(row, pa.struct(schema)) for row in rows
        ]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (pa.string(), '"\\u00e4\\u0000"', "ä\0"),
        (pa.bool_(), "true", True),
        (pa.int32(), "-2147483648", -(2**31)),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.float64(), "12345678901234567.89", 12345678901234567.89),
        (pa.float64(), "3", 3.0),
        (pa.float64(), "0E308", 0.0),
        (pa.decimal128(20, 2), "12345678901234567.89", Decimal("12345678901234567.89")),
        (pa.decimal128(20, 2), '"-1.5"', Decimal("-1.50")),
        (pa.decimal128(4, 2), "0.001E4", Decimal("10.00")),
        (pa.date32(), '"2026-01-31"', date(2026, 1, 31)),
        (
            pa.timestamp("us", "UTC"),
            '"2026-01-31T10:00:00.250+02:00"',
            datetime(2026, 1, 31, 8, 0, 0, 250_000, timezone(timedelta(0))),
        ),
        (pa.list_(pa.int64()), "[1, null]", [1, None]),
        (pa.struct([("a", pa.list_(pa.date32()))]), '{"a": ["2026-01-01"]}', None),
        (pa.struct([("a", pa.string())]), "{}", {"a": None}),
    ],
)
def test_values_fit(type_: pa.DataType, text: str, value: object) -> None:
    """Each type accepts its JSON values, and a reader gets them."""
    columns = ParquetColumns(pa.schema([("c", type_)]))
    text = f'{{"c": {text}}}'
    columns.check(parse_row(text))

    [row] = read(content_of([text.encode()], columns))
    assert row["c"] == ({"a": [date(2026, 1, 1)]} if value is None else value)


@pytest.mark.parametrize(
    ("type_", "text", "problem"),
    [
        (pa.string(), "1", "column c must have values of type string, not 1"),
        (pa.string(), '"\\ud800"', r"column c must have values of type string, not '\ud800'"),
        (pa.int32(), "2147483648", "column c must have values of type int, not 2147483648"),
        (pa.int64(), "1.0", "column c must have values of type bigint, not 1.0"),
        (pa.int64(), "true", "column c must have values of type bigint, not True"),
        (pa.float64(), "1e400", "column c must have values of type double, not 1e400"),
        (pa.float64(), "0E309", "column c must have values of type double, not 0E309"),
        (pa.float64(), "NaN", "NaN is not a number of JSON"),
        (
            pa.decimal128(4, 2),
            "1.234",
            r"column c must have values of type decimal\(4,2\), not 1.234",
        ),
        (
            pa.decimal128(4, 2),
            "123.4",
            r"column c must have values of type decimal\(4,2\), not 123.4",
        ),
        (
            pa.decimal128(4, 2),
            "0.00012E4",
            r"column c must have values of type decimal\(4,2\), not 0.00012E4",
        ),
        (
            pa.decimal128(4, 2),
            "0.0000000000000E13",
            r"column c must have values of type decimal\(4,2\), not 0.0000000000000E13",
        ),
        (pa.date32(), '"2026-02-30"', "column c must have values of type date, not '2026-02-30'"),
        (
            pa.timestamp("us", "UTC"),
            '"2026-01-31T10:00:00"',
            "column c must have values of type timestamp, not",
        ),
        (
            pa.timestamp("us", "UTC"),
            '"2026-01-31T10:00:00+00:60"',
            "column c must have values of type timestamp, not",
        ),
        (pa.list_(pa.int64()), "[1, [2]]", r"column c must have values of type bigint, not \[2\]"),
        (pa.list_(pa.int64()), "{}", r"column c must have values of type list, not \{\}"),
        (pa.struct([("a", pa.int64())]), '{"b": 1}', "the schema has no column 'c.b'"),
        (
            pa.struct([("a", pa.int64())]),
            '{"a": 1, "a": 2}',
            "an object must not have a field twice",
        ),
        (pa.int64(), "9" * 5000, "int string conversion|Exceeds the limit"),
    ],
)
def test_values_that_do_not_fit(type_: pa.DataType, text: str, problem: str) -> None:
    """They are refused, with the column and the reason."""
    columns = ParquetColumns(pa.schema([("c", type_)]))
    with pytest.raises(ValueError, match=problem.replace("\\ud", "\\\\ud")):
        columns.check(parse_row(f'{{"c": {text}}}'))


def test_a_deeply_nested_record_fits_no_column() -> None:
    """It is refused, however deep it is, and whatever other records a file has."""
    columns = ParquetColumns(pa.schema([("c", pa.struct([("c", pa.string())]))]))
    for depth in (100, 450, 100_000):
        text = '{"c":' * depth + "1" + "}" * depth
        with pytest.raises((ValueError, RecursionError)):
            columns.check(parse_row(text))


def test_types_have_names() -> None:
    """Messages name types as module files do."""
    type_ = pa.struct([("a", pa.list_(pa.decimal128(4, 2))), ("b", pa.bool_())])

    assert name_of(type_) == "{a: [decimal(4,2)], b: boolean}"
