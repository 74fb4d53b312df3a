# SPDX-License-Identifier: Apache-2.0
"""Columns for values that annotations describe."""

from __future__ import annotations

import dataclasses
import enum
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import attrs
import pyarrow as pa
import pytest
import typing_extensions

from statefun.runtime.stored.columns_of_classes import MOMENT, column_of_annotation
from statefun.runtime.stored.plain_json import plain_json

Euros = NewType("Euros", int)
TEXT = pa.string()


class Colour(enum.Enum):
    """A colour."""

    RED = "red"


class Point(NamedTuple):
    """A point."""

    x: int
    y: float


class Options(TypedDict):
    """Options."""

    depth: int


class MoreOptions(typing_extensions.TypedDict):
    """Options, of the class that Pydantic wants before Python 3.12."""

    depth: int


@attrs.frozen
class Tree:
    """A class that contains itself."""

    name: str
    children: list[Tree] = attrs.field(factory=list)


@dataclasses.dataclass
class Stop:
    """A stop of a trip."""

    city: str
    at: datetime | None = None
    delay: dataclasses.InitVar[int] = 0
    kind: ClassVar[str] = "bus"


STRUCT = pa.struct([("city", TEXT), ("at", MOMENT)])
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("annotation", "value", "type_", "converted"),
    [
        (bool, True, pa.bool_(), True),
        (int, 5, pa.int64(), 5),
        (float, 1, pa.float64(), 1.0),
        (str, "a", TEXT, "a"),
        (bytes, b"a", pa.binary(), b"a"),
        (date, NOON.date(), pa.date32(), NOON.date()),
        (datetime, NOON.replace(tzinfo=None), MOMENT, NOON),
        (Decimal, Decimal("1.50"), TEXT, "1.50"),
        (UUID, UUID(int=0), TEXT, str(UUID(int=0))),
        (Euros, 5, pa.int64(), 5),
        (Annotated[int, "positive"], 5, pa.int64(), 5),
        (Literal["a", "b"], "a", TEXT, "a"),
        (Literal["a", 1], 1, TEXT, "1"),
        (Colour, Colour.RED, TEXT, "red"),
        (int | None, None, pa.int64(), None),
        (int | str, 5, TEXT, "5"),
        (Any, {"a": [1]}, TEXT, '{"a":[1]}'),
        (list[int], [1], pa.list_(pa.int64()), [1]),
        (tuple[int, ...], (1, 2), pa.list_(pa.int64()), [1, 2]),
        (tuple[int, str], (1, "a"), TEXT, '[1,"a"]'),
        (list, [1], TEXT, "[1]"),
        (dict[str, int], {"a": 1}, pa.map_(TEXT, pa.int64()), {"a": 1}),
        (Stop, Stop("Rome", NOON), STRUCT, {"city": "Rome", "at": NOON}),
        (list[Stop], [Stop("Rome")], pa.list_(STRUCT), [{"city": "Rome", "at": None}]),
        (
            Point,
            Point(1, 2.0),
            pa.struct([("x", pa.int64()), ("y", pa.float64())]),
            {"x": 1, "y": 2.0},
        ),
        (Options, {"depth": 3}, pa.struct([("depth", pa.int64())]), {"depth": 3}),
        (MoreOptions, {"depth": 3}, pa.struct([("depth", pa.int64())]), {"depth": 3}),
        (
            Tree,
            Tree("a", [Tree("b")]),
            pa.struct([("name", TEXT), ("children", pa.list_(TEXT))]),
            {"name": "a", "children": ['{"children":[],"name":"b"}']},
        ),
    ],
)
def test_values_are_those_of_their_columns(
    annotation: Any, value: Any, type_: pa.DataType, converted: Any
) -> None:
    """Each annotation has a column, and JSON text if nothing else fits; the values fit the column's type."""
    column = column_of_annotation(annotation)

    assert column.type == type_
    assert column.convert(value) == converted
    pa.array([converted, None], type_)


def test_numbers_that_are_too_large_are_errors() -> None:
    """Spark's whole numbers have 64 bits."""
    with pytest.raises(ValueError, match="more than 64 bits"):
        column_of_annotation(int).convert(1 << 63)


def test_values_of_columns_have_a_form_in_json() -> None:
    """Also those that JSON does not have, such as times and bytes."""
    assert plain_json({"at": NOON, "raw": b"\xff", 1: (Decimal("1.5"), None), "n": math.nan}) == {
        "at": "2026-01-01T12:00:00Z",
        "raw": {"base64": "/w=="},
        "1": ["1.5", None],
        "n": "nan",
    }
