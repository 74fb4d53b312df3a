# SPDX-License-Identifier: Apache-2.0
"""Values in Avro, and values that a schema does not allow."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from statefun.formats.avro import AvroType, make_avro_type
from statefun.sdk.types import SimpleType


def _type_of(kind: Any) -> SimpleType[Any]:
    fields = [{"name": "n", "type": kind}]
    return AvroType("test.avro/R", _schema(fields))


def _schema(fields: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": fields})


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("long", 3.7, "decoding would return another value"),
        ("boolean", "false", "decoding would return another value"),
        ("float", 1e300, "decoding would return another value"),
        (["null", "float"], 1e300, "decoding would return another value"),
        ({"type": "array", "items": "long"}, (1, 0.5), "decoding would return another value"),
        (["long", "string"], ("long", 0.5), "decoding would return another value"),
        ("int", 2**40, "expected int"),
        ({"type": "map", "values": "int"}, {"a": 2**31}, "expected int"),
    ],
)
def test_a_value_that_would_be_read_as_another_one_is_refused(
    kind: Any, value: Any, problem: str
) -> None:
    """So is an integer that readers in other languages cannot read."""
    with pytest.raises(Exception, match=problem):
        _type_of(kind).serializer().serialize({"n": value})


@pytest.mark.parametrize(
    ("kind", "value", "again"),
    [
        ("long", 3.0, 3),
        ("float", 0.1, 0.10000000149011612),
        ("float", math.inf, math.inf),
        ("double", 3, 3.0),
        ("int", 2**31 - 1, 2**31 - 1),
        ({"type": "array", "items": "string"}, ("array", "b"), ["array", "b"]),
        (["null", {"type": "array", "items": "long"}], ("array", [1, 2]), [1, 2]),
        (["long", "string"], ("long", 5), 5),
    ],
)
def test_a_value_may_be_of_another_class_or_rounded(kind: Any, value: Any, again: Any) -> None:
    """A float is rounded, and a type of a union may be named."""
    serializer = _type_of(kind).serializer()

    assert serializer.deserialize(serializer.serialize({"n": value})) == {"n": again}


def test_the_shape_of_a_type_is_that_of_its_schema() -> None:
    """Spaces do not count, but the order of fields does, as values have no names of fields."""
    fields = [{"name": "balance", "type": "double"}, {"name": "debt", "type": "double"}]
    type_ = make_avro_type("test.avro/Shaped", {"type": "record", "name": "R", "fields": fields})

    assert type_.shape() == AvroType("test.avro/Shaped", _schema(fields).replace(" ", "")).shape()
    assert type_.shape() != AvroType("test.avro/Shaped", _schema(fields[::-1])).shape()
