# SPDX-License-Identifier: Apache-2.0
"""Values of a state that are changed in place."""

from __future__ import annotations

import pickle
from typing import Any

import attr
import pytest

from statefun import Context, State, StatefulFunctions, simple_type, state_value
from statefun.testing import TestContext as OneFunction


@attr.s(frozen=True)
class Frozen:
    """A frozen class whose field has an annotation, and a list."""

    items: Any = attr.ib(factory=list)


@attr.s(frozen=True)
class Unannotated:
    """The same without an annotation, as older code has it."""

    items = attr.ib(factory=list)  # type: ignore[var-annotated] # that is what is tested


def _decode(value: bytes) -> Any:
    return pickle.loads(value)


FROZEN = simple_type("test.fields/Frozen", pickle.dumps, _decode, python_type=Frozen)
UNANNOTATED = simple_type("test.fields/Unannotated", pickle.dumps, _decode, python_type=Unannotated)


class Basket(State):
    """A state with two such values."""

    frozen: Frozen = state_value(default_factory=Frozen)
    unannotated: Unannotated | None = None


@pytest.mark.parametrize(("name", "class_"), [("frozen", Frozen), ("unannotated", Unannotated)])
def test_a_list_inside_of_a_frozen_object_can_be_changed(name: str, class_: Any) -> None:
    """A change in place is written, whether the fields of the class have annotations or not."""
    functions = StatefulFunctions()

    @functions.bind("test/add")
    def add(ctx: Context, item: str, basket: Basket) -> None:
        getattr(basket, name).items.append(item)

    context = OneFunction("test/add", state={name: class_(["tea"])}, functions=functions)
    context.deliver("coffee")

    assert context.state[name].items == ["tea", "coffee"]
