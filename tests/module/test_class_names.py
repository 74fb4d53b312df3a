# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from taking_functions import taking

from statefun.module.class_names import classes_of_one_name
from statefun.module.user_program import LOADED
from statefun.sdk.fields import text_of_annotation


def local(**fields: Any) -> Any:
    """Return a class whose place is this function."""

    @dataclasses.dataclass
    class Item:
        __annotations__ = fields

    return Item


@pytest.mark.parametrize(
    "make",
    [
        lambda **fields: dataclasses.make_dataclass("Item", fields.items()),
        lambda **fields: attrs.make_class(
            "Item", {name: attrs.field(type=each) for name, each in fields.items()}
        ),
        local,
    ],
    ids=["make_dataclass", "make_class", "local"],
)
def test_classes_of_one_place_are_compared(make: Callable[..., Any]) -> None:
    """One that was made again is the same; one with other fields would lose some of the other's."""
    former, again, other = make(sku=str), make(sku=str), make(sku=str, price=int)
    place = text_of_annotation(former)

    assert [*classes_of_one_name(taking(former, again, former))] == []
    (problem,) = classes_of_one_name(taking(former, again, other))
    assert problem.startswith(
        f"{place}, which test.fns/0 takes, and another {place}, which test.fns/2 takes, both"
    )
    assert problem.endswith(
        f'another typename: make_json_type("test.fns/Item", {place}); if a class was defined again, define the '
        "functions that take it again, too"
    )


def test_a_class_may_be_replaced_by_one_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, whose functions each keep their class; but two classes that a module has at once stay two."""
    first, former, newer, inner, innermost = (
        attrs.make_class("Entry", {name: attrs.field(type=str)}) for name in "abcde"
    )
    inner.__qualname__ = innermost.__qualname__ = "Outer.Entry"
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "Entry", newer, raising=False)
    monkeypatch.setattr(module, "Outer", SimpleNamespace(Entry=inner), raising=False)

    for some in ([former, newer], [newer, former], [inner, innermost], [first, former]):
        assert [*classes_of_one_name(taking(*some))] == []
    assert [*classes_of_one_name(taking(first, former, newer))] == []

    monkeypatch.setattr(module, "_12", former, raising=False)  # of IPython
    assert [*classes_of_one_name(taking(former, newer))] == []
    monkeypatch.setattr(module, "Other", former, raising=False)
    assert len([*classes_of_one_name(taking(former, newer))]) == 1
    assert len([*classes_of_one_name(taking(first, former))]) == 1
    monkeypatch.delitem(sys.modules, __name__)  # as when a program is loaded again
    assert [*classes_of_one_name(taking(former, newer))] == []


def test_a_program_that_was_loaded_again_has_the_same_classes() -> None:
    """Whatever the names of its module are; a class of another module is another one, whatever its fields are."""
    places = [local(sku=str) for _ in range(3)]
    for class_, module in zip(places, ["__main__", LOADED, "stock"], strict=True):
        class_.__module__, class_.__qualname__ = module, "Item"

    (problem,) = classes_of_one_name(taking(*places))

    assert problem.startswith(
        "Item, which test.fns/0 takes, and stock.Item, which test.fns/2 takes, both have"
    )
    assert problem.endswith('another typename: make_json_type("test.fns/Item", stock.Item)')
