# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import enum
from collections import namedtuple
from collections.abc import Callable
from typing import Annotated, Any, Generic, NamedTuple, NewType, Optional, TypedDict, TypeVar, cast

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import IntType, LongType
from statefun.sdk.alike import are_alike

MAKERS: list[Callable[[str, dict[str, Any]], Any]] = [
    lambda name, fields: attrs.make_class(
        name, {key: attrs.field(type=each) for key, each in fields.items()}
    ),
    lambda name, fields: dataclasses.make_dataclass(name, fields.items()),
    lambda name, fields: msgspec.defstruct(name, fields.items()),
    lambda name, fields: NamedTuple(name, [*fields.items()]),
    cast("Any", TypedDict),
    lambda name, fields: cast("Any", pydantic.create_model)(
        name, **{key: (each, ...) for key, each in fields.items()}
    ),
]
"""What makes a class of a name and annotations of fields, for each kind of classes."""
ANNOTATIONS = st.recursive(
    st.sampled_from([str, int, float, bytes, list[int], dict[str, float], str | None, Any]),
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),  # type: ignore[valid-type] # made here
        inner.map(lambda each: dict[str, each]),  # type: ignore[valid-type] # as above
        inner.map(lambda each: Optional[each]),  # noqa: UP045 - members are drawn
    ),
    max_leaves=3,
)
FIELDS = st.dictionaries(st.sampled_from(["sku", "price", "count"]), ANNOTATIONS, max_size=3)


@given(st.sampled_from(MAKERS), FIELDS, FIELDS)
def test_classes_with_the_same_fields_are_alike(
    make: Callable[[str, dict[str, Any]], Any], fields: dict[str, Any], others: dict[str, Any]
) -> None:
    """Neither the objects decide nor, where JSON has names, the order of the fields; also for classes of fields."""
    first, other = make("Item", fields), make("Item", others)
    turned = make("Item", dict(reversed(fields.items())))
    is_array = issubclass(first, tuple)
    is_same = [*fields.items()] == [*others.items()] if is_array else fields == others

    assert are_alike(first, make("Item", fields))
    assert are_alike(first, turned) == (not is_array or len(fields) < 2)
    assert are_alike(first, other) == is_same
    assert not are_alike(first, make("Other", fields))
    outer = [
        make("Order", {"items": list[each]})  # type: ignore[valid-type] # made above
        for each in (first, other)
    ]
    assert are_alike(*outer) == is_same


def again() -> list[Any]:
    """Make annotations with classes of their own, as a notebook cell does whenever it runs."""

    class Colour(enum.Enum):
        RED = "red"

    @attrs.frozen
    class Node:
        value: int
        colour: Colour
        next: Node | None = None

    @dataclasses.dataclass
    class Tree:
        nodes: tuple[Node, ...]
        left: Tree | None = None
        right: Optional[Tree] = None  # noqa: UP045 - the older form

    Tree.__annotations__ |= {
        "nodes": tuple[Node, ...],
        "left": Tree | None,
        "right": Optional[Tree],  # noqa: UP045 - as above
    }
    Node.__annotations__ |= {"colour": Colour, "next": Node | None}
    return [Tree, list[Node], NewType("Root", Tree), Annotated[Tree, "a note"], Colour]


def test_what_a_cell_defines_again_is_alike() -> None:
    """Also enums, and classes with fields of their own class."""
    first, second = again(), again()

    assert first[0] is not second[0]
    assert all(map(are_alike, first, second))
    assert are_alike(first[0], second[2])
    assert not are_alike(first[0], second[1])


class Elsewhere:
    """Stands for another module."""

    class Colour(enum.Enum):
        """Of something else."""

        RED = "#f00"

    Pair = namedtuple("Pair", "x y")  # noqa: PYI024 - as older code has it

    class Point(NamedTuple):
        """JSON has an array of the two."""

        x: int
        y: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (int, str),
        (int, int | None),
        (int | str, str | int),
        (list[int], tuple[int]),
        (tuple[int, int], tuple[int, ...]),
        (Elsewhere.Colour, enum.Enum("Colour", {"RED": "red"})),
        (Elsewhere, attrs.make_class("Elsewhere", [])),
        (Elsewhere.Pair, attrs.make_class("Pair", {"x": attrs.field(type=int)})),
        (Elsewhere.Pair, namedtuple("Pair", "x z")),  # noqa: PYI024 - as above
        (Elsewhere.Point, NamedTuple("Point", [("y", int), ("x", int)])),
        (Elsewhere.Point, dataclasses.make_dataclass("Point", [("x", int), ("y", int)])),
        (
            msgspec.defstruct("Point", [("x", int), ("y", int)], array_like=True),
            msgspec.defstruct("Point", [("y", int), ("x", int)], array_like=True),
        ),
        (Annotated[int, IntType], Annotated[int, LongType]),
    ],
)
def test_what_differs_is_not_alike(one: Any, other: Any) -> None:
    """Whatever the parts are, and in both directions."""
    assert not are_alike(one, other)
    assert not are_alike(other, one)
    assert are_alike(one, one)


def test_classes_with_type_variables_are_compared_by_the_names_of_these() -> None:
    """A module or a cell that runs again makes them anew, too."""
    first, again = (_boxed("T") for _ in range(2))

    assert are_alike(first, again)
    assert not are_alike(first, _boxed("U"))


def _boxed(name: str) -> Any:
    """Return a class with a field of a generic class."""
    variable: Any = TypeVar(name)  # type: ignore[misc] # its name is that of the argument
    generic: Any = Generic
    box: Any = dataclasses.make_dataclass("Box", [("value", variable)], bases=(generic[variable],))
    return dataclasses.make_dataclass("Order", [("box", box[int])])
