# SPDX-License-Identifier: Apache-2.0
"""Integers that are too long for Avro's type "int", in values of all kinds of schemas."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

import pytest

from statefun.formats.avro import AvroType, decode, encode_exactly

LONG = 2**31
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
CHILDREN = {"type": "array", "items": "Tree"}
TREE = {
    "type": "record",
    "name": "com.example.Tree",
    "fields": [{"name": "n", "type": "int"}, {"name": "children", "type": CHILDREN}],
}


def _record(*kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", LONG),
        ({"type": "int"}, -LONG - 1),
        ({"type": "array", "items": "int"}, [1, LONG]),
        ({"type": "array", "items": ["int", "null"]}, [None, ("int", LONG)]),
        ({"type": "map", "values": {"type": "array", "items": "int"}}, {"a": [], "b": [LONG]}),
        (_record("string", ["null", "int"]), {"f0": "a", "f1": ("int", LONG)}),
        (_record(POINT, "P"), {"f0": {"x": 1}, "f1": {"x": LONG}}),
        (TREE, {"n": 1, "children": [{"n": 2, "children": [{"n": LONG, "children": []}]}]}),
        ({"type": "int", "logicalType": "com.example-number"}, LONG),
    ],
)
def test_an_integer_that_is_too_long_is_refused_wherever_it_is(schema: Any, value: Any) -> None:
    """Also in a union, in a type that a schema names only, and in a record that contains itself."""
    with pytest.raises(Exception, match="expected"):
        encode_exactly(value, json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["int", "long"], LONG),
        ({"type": "array", "items": ["int", "long", "string"]}, [1, LONG, "a"]),
        (_record("int", "long"), {"f0": LONG - 1, "f1": LONG}),
        (_record(POINT, ["P", "long"]), {"f0": {"x": 1}, "f1": LONG}),
        (TREE, {"n": -LONG, "children": [{"n": 2, "children": []}]}),
        (_record({"type": "enum", "name": "E", "symbols": ["a"]}, "E"), {"f0": "a", "f1": "a"}),
    ],
)
def test_a_long_integer_is_taken_where_a_schema_has_a_long(schema: Any, value: Any) -> None:
    """So are the shortest and the longest integer of 32 bits elsewhere."""
    text = json.dumps(schema)

    assert decode(encode_exactly(value, text), text) == value


def test_numbers_of_an_array_are_not_compared_one_by_one() -> None:
    """A value with many numbers is checked with as few calls of Python's functions as one with few numbers."""
    type_ = AvroType("test.avro/Numbers", json.dumps({"type": "array", "items": "int"}))
    serializer = type_.serializer()
    serializer.serialize([1])
    calls = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        serializer.serialize([*range(1000)])
    finally:
        sys.setprofile(before)

    assert len(calls) < 100
