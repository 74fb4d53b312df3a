# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, TypedDict

import attrs
import pytest

from statefun import (
    Address,
    Context,
    FunctionError,
    RequestReplyHandler,
    State,
    StatefulFunctions,
    StringType,
    UnexpectedValueError,
    make_json_type,
)
from statefun.module.class_names import classes_of_one_name
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.sdk.encoding import typed
from statefun.testing import InProcessApplication
from statefun.windows import Tumbling, Window, WindowContext, windowed

TARGET = Address("test.misdirected/target", "x")
SENDER = "test.misdirected/sender"


@attrs.frozen
class Item:
    """Of an order."""

    sku: str
    price: int = 0


class Stock:
    """Stands for another module."""

    @attrs.frozen
    class Item:
        """In stock."""

        sku: str
        count: int = 1


class Mirror:
    """Stands for a module with classes of its own for what others send."""

    @attrs.frozen
    class Item:
        """As the sender has it."""

        price: int
        sku: str


class View:
    """Stands for a module that needs some of the fields alone."""

    class Item(TypedDict):
        """A dict, whatever the class is."""

        sku: str


def sending(
    value: Any, takes: Any, got: list[Any], delay: timedelta | None = None
) -> StatefulFunctions:
    """Register a function that sends a value, and one that takes values of a class."""
    functions = StatefulFunctions()

    @functions.bind(SENDER)
    def send(ctx: Context, _: str) -> None:
        if delay is None:
            ctx.send(TARGET, value)
        else:
            ctx.send_after(delay, TARGET, value)

    def take(ctx: Context, taken: Any) -> None:
        got.append(taken)

    take.__annotations__["taken"] = takes
    functions.register(TARGET.typename, take)
    return functions


def run(functions: StatefulFunctions) -> None:
    """Let the sender send, and the target take what has come."""
    app = InProcessApplication(functions=functions, module=[])
    app.send(SENDER, "Ada", "go")
    app.advance(seconds=2)


def answered(functions: StatefulFunctions) -> FromFunction:
    """Let a server of the functions call the sender."""
    asked = ToFunction()
    target = asked.invocation.target
    target.namespace, target.type, target.id = "test.misdirected", "sender", "Ada"
    argument = asked.invocation.invocations.add().argument
    argument.typename, argument.value = typed("go", StringType)
    argument.has_value = True
    handler = RequestReplyHandler(functions)
    return FromFunction.FromString(handler.handle_sync(asked.SerializeToString()))


REFUSED = (
    r"function test.misdirected/sender at address test.misdirected/sender/Ada: a value of class test_misdirected.Item was "
    r"sent to test.misdirected/target, which takes test_misdirected.Stock.Item: both have the typename "
    r"io.statefun.python/Item, so the value would be decoded as the other class; send the class that it takes, or give one "
    r'of the two another typename: make_json_type\("test.misdirected/Item", Item\)'
)


@pytest.mark.parametrize("delay", [None, timedelta(seconds=1)])
def test_a_class_is_never_decoded_as_another_one(delay: timedelta | None) -> None:
    """Its sender fails, with the line that prevents it, and nothing arrives."""
    got: list[Any] = []

    with pytest.raises(FunctionError, match=f"{REFUSED}( |$)"):
        run(sending(Item("tea", 7), Stock.Item, got, delay))

    assert got == []


def test_the_line_of_the_error_prevents_it() -> None:
    """The class has a type of its own then, which a function that takes another class of the name does not take."""
    make_json_type("test.misdirected/Item", Item)

    with pytest.raises(
        UnexpectedValueError,
        match=(
            "they take Item. Send an object of the class that they take, or add a handler with .on(...): "
            "test.misdirected/Item is the type of another class, test_misdirected.Item"
        ).replace("(...)", r"\(...\)"),
    ):
        run(sending(Item("tea", 7), Stock.Item, []))


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize(
    ("takes", "taken"),
    [
        (Item, Item("tea", 7)),
        (str | Item, Item("tea", 7)),
        (Mirror.Item, Mirror.Item(7, "tea")),
        (View.Item, {"sku": "tea"}),
    ],
)
def test_what_loses_nothing_is_sent(takes: Any, taken: Any, served: bool) -> None:
    """The class itself, one with the same fields, and what is no class with fields."""
    got: list[Any] = []
    functions = sending(Item("tea", 7), takes, got)

    if served:
        (message,) = answered(functions).invocation_result.outgoing_messages
        assert json.loads(message.argument.value) == {"sku": "tea", "price": 7}
    else:
        run(functions)
        assert got == [taken]


def test_a_server_checks_the_classes_of_its_own_functions() -> None:
    """The runtime that has called it knows no classes; what other servers take is not known."""
    functions = sending(Item("tea", 7), Stock.Item, [])
    with pytest.raises(FunctionError, match=REFUSED):
        answered(functions)

    functions.remove(TARGET.typename)
    assert len(answered(functions).invocation_result.outgoing_messages) == 1


def test_a_class_that_is_only_stored_is_in_nobodys_way() -> None:
    """Each value of a state is decoded as the class that the state declares."""
    got: list[Any] = []
    functions = sending(Stock.Item("tea", 3), Stock.Item, got)

    class Basket(State):
        item: Item | None = None

    @functions.bind("test.misdirected/basket")
    def keep(ctx: Context, price: int, basket: Basket) -> None:
        basket.item = Item("tea", price)

    app = InProcessApplication(functions=functions, module=[])
    app.send("test.misdirected/basket", "x", 7)
    app.send(SENDER, "x", "go")
    app.drain()

    assert app.state(Address("test.misdirected/basket", "x")) == {"item": Item("tea", 7)}
    assert got == [Stock.Item("tea", 3)]


def test_a_class_is_never_decoded_as_another_one_for_a_window() -> None:
    """Nor may another function take the other class."""
    functions = sending(Item("tea", 7), str, [])
    functions.remove(TARGET.typename)

    class Sold(Window):
        count: int = 0

    @windowed(TARGET.typename, Tumbling(timedelta(minutes=5)), functions=functions)
    def sell(ctx: WindowContext, item: Stock.Item, sold: Sold) -> None: ...

    assert [*classes_of_one_name(functions)] == []
    with pytest.raises(FunctionError, match=REFUSED):
        answered(functions)

    @functions.bind("test.misdirected/orders")
    def order(ctx: Context, item: Item) -> None: ...

    assert len([*classes_of_one_name(functions)]) == 1


def test_a_class_that_was_defined_again_with_other_fields_is_another_one() -> None:
    """The error says that the function still has the former one."""
    make = attrs.make_class
    former, newer = (
        make("Made", {name: attrs.field(type=int, default=1) for name in names})
        for names in (["sku"], ["sku", "price"])
    )
    got: list[Any] = []

    with pytest.raises(
        FunctionError,
        match=r"which takes another .*Made: .*; if a class was defined again, define the functions that take it again, too",
    ):
        run(sending(newer(), former, got))

    same = make("Made", {"sku": attrs.field(type=int, default=1)})
    run(sending(same(), former, got))
    assert got == [former()]
