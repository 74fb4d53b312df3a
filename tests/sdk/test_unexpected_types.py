# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import date
from typing import Any, Literal

import attrs
import pytest

from statefun import IntType, StringType
from statefun.sdk.unexpected_types import cure, text_of_taken


@attrs.frozen
class Pong:
    """The answer to a ping."""


@attrs.frozen
class Order:
    """Of a customer."""

    class Line:
        """An inner class."""


def test_what_handlers_take_is_shown_without_modules() -> None:
    """Whatever the module of a class is; texts in an annotation stay."""

    class Local:
        pass

    annotations = [int, Pong, Order.Line, Local, list[Order.Line], dict[str, Local], date | None]
    assert [text_of_taken(each) for each in annotations] == [
        *("int", "Pong", "Line", "Local", "list[Line]", "dict[str, Local]", "date | None"),
    ]
    assert text_of_taken(list[Literal["a.b"]]) == "list[Literal['a.b']]"
    assert text_of_taken(IntType) == IntType.typename


@pytest.mark.parametrize(
    ("typename", "takes", "advice"),
    [
        ("a/Ping", [str, Order, Pong], 'make_json_type("a/Ping", Pong)'),
        ("a/Entry", [str, Order], 'make_json_type("a/Entry", Order)'),
        ("a/Entry", [Pong, Order], 'make_json_type("a/Entry", cls)'),
        ("a/Entry", [str], 'make_json_type("a/Entry", cls)'),
        (
            StringType.typename,
            [Order],
            "add one with .on(...), or name a class's type: make_json_type",
        ),
        ("", [Order], "add one with .on(None)"),
    ],
)
def test_the_cure_names_the_class_that_may_have_been_renamed(
    typename: str, takes: list[Any], advice: str
) -> None:
    """The one of a similar name, or the only one; a type that has a class needs another handler."""
    assert cure(typename, takes).endswith(advice)
