# SPDX-License-Identifier: Apache-2.0
"""Cells of columns become the values that they stand for."""

from __future__ import annotations

import enum
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pyarrow as pa
import pytest
import state_application
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from state_application import SPECS

from statefun import (
    DoubleType,
    IntType,
    StringType,
    Type,
    make_avro_type,
    make_json_type,
    make_msgpack_type,
    make_protobuf_type,
)
from statefun.runtime.loading.typed_cells import CellEncoder
from statefun.runtime.stored.value_columns import column_of
from statefun.sdk.fields import are_same

TYPES = {spec.name: spec.type for spec in state_application.everything()}
LISTS = make_json_type("test.cells/Lists", dict[str, list[int]])
ANYTHING = make_json_type("test.cells/Anything")
NUMBERS = count()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def there_and_back(type_: Type[Any], value: Any) -> Any:
    """Return the value that the cell of a value becomes."""
    column = column_of(type_)
    [cell] = pa.array([column.convert(value)], column.type).to_pylist(maps_as_pydicts="strict")
    typename, content = CellEncoder(type_).encode(cell)
    assert typename == type_.typename
    return type_.decode(typename, content)


@pytest.mark.parametrize("name", [name for name in SPECS if name != "secret"])
def test_cells_of_all_kinds_of_types(name: str) -> None:
    """Primitive types, JSON and MessagePack of classes and of anything, Avro, Protobuf."""
    assert there_and_back(TYPES[name], SPECS[name]) == SPECS[name]


@attrs.frozen
class Either:
    """A value of two types."""

    value: int | str


@attrs.frozen
class Tree:
    """A class that contains itself."""

    size: int | str
    children: list[Tree] = attrs.field(factory=list)


class Options(TypedDict, total=False):
    """Options that need not be there."""

    depth: int
    width: int


class Level(enum.IntEnum):
    """An enum of numbers."""

    HIGH = 20


class Renamed(msgspec.Struct, rename="camel"):
    """A class whose fields have other names in JSON."""

    given_name: str


class Place(NamedTuple):
    """A class whose values are lists in JSON."""

    x: int
    y: int


class Box(NamedTuple):
    """A class with defaults whose values are lists in JSON."""

    x: int
    day: date = date(2020, 2, 29)
    z: int = 0


class Entry(msgspec.Struct, array_like=True, tag="entry"):
    """A struct with defaults whose values are lists in JSON, after a tag."""

    a: int
    place: Place = msgspec.field(default_factory=lambda: Place(3, 4))
    c: int = 7


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize("make", [make_json_type, make_msgpack_type])
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Either, Either(5)),
        (Either, Either("five")),
        (Either, Either("5")),
        (dict[str, Any], {"age": 5, "name": "Ada", "tags": ["[x", None]}),
        (list[Any], [1, "a", True, 1.0]),
        (int | str, 5),
        (int | str, "5"),
        (str, "[a remark in brackets]"),
        (Tree, Tree(1, [Tree("1"), Tree("a", [Tree(2)])])),
        (Options, {"depth": 3}),
        (dict[Level, Level], {Level.HIGH: Level.HIGH}),
        (time, time(12, 30)),
        (list[timedelta], [timedelta(hours=-1, microseconds=1)]),
        (Renamed, Renamed("Ada")),
        (list[Place], [Place(1, 2)]),
        (dict[str, Decimal], {"price": Decimal("1.50")}),
    ],
)
def test_cells_become_the_values_of_which_they_were_made(
    make: Any, annotation: Any, value: Any
) -> None:
    """Also where a column has JSON, a text looks like JSON, or fields have other names or are missing."""
    number = next(NUMBERS)
    again = there_and_back(make(f"test.cells/Made{number}", annotation), value)

    assert are_same(again, value)


@pytest.mark.parametrize("make", [make_json_type, make_msgpack_type])
@pytest.mark.parametrize(
    ("class_", "cell", "value"),
    [
        (Box, {"x": 1, "z": 9}, Box(1, z=9)),
        (Box, {"z": 9, "x": 1}, Box(1, z=9)),
        (Box, {"x": 1}, Box(1)),
        (Entry, {"a": 1, "c": 9}, Entry(1, c=9)),
        (Entry, {"place": {"y": 2, "x": 1}, "a": 1}, Entry(1, Place(1, 2))),
    ],
)
def test_fields_of_a_class_whose_values_are_lists_are_found_by_name(
    make: Any, class_: Any, cell: Any, value: Any
) -> None:
    """A field that a cell does not have gets its default, and no other field moves to its place."""
    type_ = make(f"test.cells/Lists{next(NUMBERS)}", class_)

    assert are_same(type_.decode(*CellEncoder(type_).encode(cell)), value)


@pytest.mark.parametrize("make", [make_json_type, make_msgpack_type])
@pytest.mark.parametrize(
    ("class_", "cell", "problem"),
    [
        (Box, {"x": 1, "depth": 5}, "Box has the fields x, day, z; unknown field 'depth'"),
        (Box, {"z": 1}, "missing required field 'x'"),
        (Entry, {"c": 1}, "Entry has the fields a, place, c; missing required field 'a'"),
        (Entry, {"a": 1, "place": {"y": 1}}, "Place has the fields x, y; missing required field"),
        (Entry, {}, "missing required field 'a'"),
    ],
)
def test_fields_that_a_class_whose_values_are_lists_does_not_have_or_lacks_are_refused(
    make: Any, class_: Any, cell: Any, problem: str
) -> None:
    """They are named, as the value of an unknown field would become that of another one in a list."""
    encoder = CellEncoder(make(f"test.cells/Lists{next(NUMBERS)}", class_))

    with pytest.raises(ValueError, match=problem):
        encoder.encode(cell)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["null", "int", "string"], 5),
        (["null", "int", "string"], "5"),
        (DECIMAL, Decimal("1.50")),
        ({"type": "int", "logicalType": "time-millis"}, time(12, 30)),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=5)),
    ],
)
def test_cells_of_avro_become_the_values_of_which_they_were_made(schema: Any, value: Any) -> None:
    """Unions of several types, and logical types that are shown as text."""
    again = there_and_back(make_avro_type(f"test.cells/Avro{next(NUMBERS)}", schema), value)

    assert are_same(again, value)


def test_a_text_that_is_not_json_is_no_cell_of_a_column_of_json() -> None:
    """It is refused, since it could be any of several values; the error says how to write a text."""
    either = make_json_type("test.cells/Either", Either)

    with pytest.raises(
        ValueError, match=r"the text 'five' is not JSON, which its column must have"
    ):
        CellEncoder(either).encode({"value": "five"})
    assert either.decode(*CellEncoder(either).encode({"value": '"five"'})) == Either("five")
    assert either.decode(*CellEncoder(either).encode('{"value": "five"}')) == Either("five")


@pytest.mark.parametrize("name", SPECS)
def test_stored_bytes_of_all_kinds_of_types(name: str) -> None:
    """They stay as they are."""
    content = TYPES[name].serializer().serialize(SPECS[name])

    assert CellEncoder(TYPES[name]).encode(content).value == content


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.text(),
    st.dictionaries(st.text(), st.lists(st.integers(-9, 9))),
)
def test_random_cells(number: int, text: str, lists: dict[str, list[int]]) -> None:
    """Numbers, texts, and values of annotations."""
    assert there_and_back(IntType, number) == number
    assert there_and_back(StringType, text) == text
    assert there_and_back(DoubleType, number / 3) == number / 3
    encoded = CellEncoder(LISTS).encode(lists)
    assert LISTS.decode(*encoded) == lists


@given(st.dictionaries(st.text(), JSON, max_size=4) | st.lists(JSON, max_size=4))
def test_random_json(value: Any) -> None:
    """Any JSON document, from its text."""
    assert there_and_back(ANYTHING, value) == value


@pytest.mark.parametrize(
    ("type_", "cell"),
    [
        (IntType, 2**31),
        (IntType, "7"),
        (StringType, 7),
        (TYPES["order"], {"lines": None}),
        (TYPES["order"], b"not JSON"),
        (TYPES["span"], {"minutes": 1}),
        (TYPES["reading"], {"sensor": "s1"}),
        (ANYTHING, "not JSON"),
    ],
)
def test_what_does_not_fit_is_an_error(type_: Type[Any], cell: Any) -> None:
    """Numbers that are too large, cells of another type, missing and unknown fields."""
    with pytest.raises(Exception, match=r"."):
        CellEncoder(type_).encode(cell)


def test_moments_of_protobuf() -> None:
    """A timestamp is a moment in a column, and becomes a timestamp again."""
    type_ = make_protobuf_type(Timestamp)
    moment = Timestamp(seconds=1_700_000_000, nanos=5000)

    assert there_and_back(type_, moment) == moment
