# SPDX-License-Identifier: Apache-2.0
"""Cells of columns become the values that they stand for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import state_application
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from state_application import SPECS

from statefun import DoubleType, IntType, StringType, Type, make_json_type, make_protobuf_type
from statefun.runtime.loading.typed_cells import CellEncoder
from statefun.runtime.stored.value_columns import column_of

TYPES = {spec.name: spec.type for spec in state_application.everything()}
LISTS = make_json_type("test.cells/Lists", dict[str, list[int]])
ANYTHING = make_json_type("test.cells/Anything")
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
