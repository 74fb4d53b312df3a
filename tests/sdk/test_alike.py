# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import enum
from collections import namedtuple
from collections.abc import Callable
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
    cast,
)

import attrs
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import core_schema

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

    class Line(typing_extensions.TypedDict):
        sku: str

    class Given:
        """A class that only Pydantic can encode."""

        @classmethod
        def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
            return core_schema.any_schema()

    class Basket(pydantic.BaseModel):
        line: Line
        given: Given
        colour: Literal[Colour.RED]

    Tree.__annotations__ |= {
        "nodes": tuple[Node, ...],
        "left": Tree | None,
        "right": Optional[Tree],  # noqa: UP045 - as above
    }
    Node.__annotations__ |= {"colour": Colour, "next": Node | None}
    return [Tree, list[Node], NewType("Root", Tree), Annotated[Tree, "a note"], Colour, Basket]


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


def _item(default: int = 5, **options: Any) -> Any:
    """Make a class of msgspec's with an option that says how its objects are encoded."""
    return msgspec.defstruct("Item", [("unit_price", int, default)], **options)


def _model(**options: Any) -> Any:
    """Make a Pydantic model with an option that says how a field is encoded."""
    return pydantic.create_model("Item", unit_price=(int, pydantic.Field(0, **options)))


MEMBER = TypeVar("MEMBER")
ALIAS: Any = typing_extensions.TypeAliasType
LIST: Any = list
TUPLE: Any = tuple
LITERAL: Any = Literal
PAIR = ALIAS("PAIR", TUPLE[MEMBER, MEMBER], type_params=(MEMBER,))


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
        (
            LITERAL[Elsewhere.Colour.RED],
            LITERAL[cast("Any", enum.Enum("Colour", {"RED": "red"})).RED],
        ),
        (_item(rename="camel"), _item()),
        (_item(omit_defaults=True), _item()),
        (_item(tag="a"), _item(tag="b")),
        (_item(omit_defaults=True), _item(default=7, omit_defaults=True)),
        (_model(), _model(alias="p")),
        (_model(alias="p"), dataclasses.make_dataclass("Item", [("unit_price", int)])),
        (_model(), _model(exclude=True)),
        (PAIR[int], PAIR[str]),
        (PAIR[int], tuple[int, int]),
    ],
)
def test_what_differs_is_not_alike(one: Any, other: Any) -> None:
    """Whatever the parts are, and in both directions."""
    assert not are_alike(one, other)
    assert not are_alike(other, one)
    assert are_alike(one, one)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _item(rename="camel"),
        lambda: _item(omit_defaults=True),
        lambda: msgspec.defstruct(
            "Item",
            [
                ("one", list[int], msgspec.field(default_factory=lambda: [1])),
                ("all", list[int], msgspec.field(default_factory=list)),
            ],
            omit_defaults=True,
        ),
        lambda: _model(alias="p"),
        lambda: _model(validation_alias=pydantic.AliasChoices("p", "price")),
        lambda: _model(exclude=True),
        lambda: PAIR[_item()],
    ],
)
def test_classes_that_are_encoded_alike_are_alike(make: Callable[[], Any]) -> None:
    """Whatever their options say about names and values."""
    assert are_alike(make(), make())


class Named:
    """Is an annotation that contains itself, as ``type Json = list[Json] | str`` is one."""

    def __init__(self, leaf: Any) -> None:
        self._leaf = leaf

    @property
    def __value__(self) -> Any:
        return LIST[self] | self._leaf


def test_annotations_that_contain_themselves_are_compared() -> None:
    """The comparison ends."""
    assert are_alike(Named(str), Named(str))
    assert not are_alike(Named(str), Named(int))


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
