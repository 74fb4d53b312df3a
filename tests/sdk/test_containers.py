# SPDX-License-Identifier: Apache-2.0
"""Containers of derived classes equal what decoding returns, but are other values."""

from __future__ import annotations

import dataclasses
import typing
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import attrs
import pytest

from statefun import DefinitionError, State
from statefun.sdk.structured import StructuredType


class Basket(State):
    """A state with counts."""

    counts: dict[str, int] | None = None


def test_a_state_refuses_a_counter_where_it_would_read_a_dict() -> None:
    """The error says what to do; otherwise, a new key would be a ``KeyError`` in a later call."""
    basket = Basket()
    text = "value 'counts': .* convert it first, such as a Counter with dict"
    with pytest.raises(DefinitionError, match=text):
        basket.counts = Counter("ab")

    basket.counts = dict(Counter("ab"))

    assert basket.counts == {"a": 1, "b": 1}


class Pair(typing.NamedTuple):
    """A tuple with names."""

    a: int
    b: int


@attrs.define
class Words:
    """A class with a container of containers."""

    counts: list[dict[str, int]]


@dataclasses.dataclass
class Texts:
    """The same with a list of objects."""

    words: list[Words]


@dataclasses.dataclass
class Node:
    """A class with parts of its own class, which come before its containers."""

    first: Node | None
    nodes: list[Node]
    counts: dict[str, int]


class List(list[Any]):
    """A list of a class of its own."""


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("annotation", "value", "derived"),
    [
        (dict[str, int], {"a": 1}, Counter("a")),
        (dict[str, int], {"a": 1}, defaultdict(int, a=1)),
        (dict[str, int], {"a": 1}, OrderedDict(a=1)),
        (list[dict[str, int]], [{"a": 1}], [Counter("a")]),
        (list[int], [1], List([1])),
        (set[int], {1}, frozenset({1})),
        (frozenset[int], frozenset({1}), {1}),
        (tuple[int, int], (1, 2), Pair(1, 2)),
        (Pair, Pair(1, 2), None),
        (dict[str, int] | None, {"a": 1}, Counter("a")),
        (Words, Words([{"a": 1}]), Words([Counter("a")])),
        (Texts, Texts([Words([{"a": 1}])]), Texts([Words([Counter("a")])])),
        (dict[str, tuple[float, ...]], {"a": (1, 2)}, None),
        (
            Node,
            Node(None, [Node(None, [], {"a": 1})], {}),
            Node(None, [Node(None, [], Counter("a"))], {}),
        ),
        (
            Node,
            Node(Node(None, [], {"a": 1}), [], {}),
            Node(Node(None, [], Counter("a")), [], {}),
        ),
    ],
)
def test_containers_of_derived_classes_are_refused(
    annotation: Any, value: Any, derived: Any, encoding: Any
) -> None:
    """They equal what decoding returns, but behave differently; all other values encode as before."""
    type_: StructuredType[Any] = StructuredType("test.containers/Value", annotation, encoding)
    serializer = type_.serializer()

    assert serializer.deserialize(serializer.serialize(value)) == value
    if derived is not None:
        assert derived == value
        with pytest.raises(TypeError, match="decoding would return another container"):
            serializer.serialize(derived)
