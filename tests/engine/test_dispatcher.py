# SPDX-License-Identifier: Apache-2.0
"""An address whose rows come in several parts, as Spark's Arrow batches end anywhere."""

from __future__ import annotations

import gc
import signal

import pytest

from statefun import (
    Context,
    IntType,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
    message_builder,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock, SystemClock
from statefun.engine.delays import WAKE_UP
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program

KEY = b"Ada\0t.fns/f"


def program(handled: list[str], target: str) -> Program:
    """Return a program whose function sends a message on to itself or to one without state."""
    functions = StatefulFunctions()

    @functions.bind("t.fns/f", specs=[ValueSpec("count", IntType)])
    def keep(ctx: Context, message: Message) -> None:
        handled.append(message.as_string())
        if message.as_string() == "first":
            ctx.send(message_builder(target, "Ada", str_value="second"))

    @functions.bind("t.fns/stateless")
    def relay(_: Context, message: Message) -> None:
        handled.append(message.as_string())

    return Program(functions, {})


@pytest.mark.parametrize("target", ["t.fns/f", "t.fns/stateless"])
def test_immediate_messages_are_delivered_though_the_last_part_has_no_message(target: str) -> None:
    """It has only a wake-up, which comes after all messages and calls nobody."""
    handled: list[str] = []
    clock = SystemClock()
    dispatcher = Dispatcher(
        program(handled, target),
        BatchClock(clock, clock.now()),
        batch=1,
        delivered_up_to=0,
        concurrency=10,
        immediate=10,
    )
    first = bytes(StringType.serializer().serialize("first"))
    columns = Columns(
        [b"Bob\0t.fns/f"] * 2,
        [StringType.typename, WAKE_UP],
        [first, b"%d" % clock.now()],
        [None, None],
        [0, 0],
        cell=lambda *_: None,
    )
    values, effects = AddressValues(None), Effects()
    for row, last in ((0, False), (1, True)):
        for _ in dispatcher.dispatch([Group(KEY, columns, row, row + 1, values, last)], effects):
            pass

    assert handled == ["first", "second"]


def test_a_dispatch_that_is_given_up_leaves_no_timer() -> None:
    """The timer and the handler of signals are what they were before, as at the end of a dispatch."""
    clock = SystemClock()
    dispatcher = Dispatcher(
        program([], "t.fns/f"),
        BatchClock(clock, clock.now()),
        batch=1,
        delivered_up_to=0,
        concurrency=10,
        immediate=10,
    )
    value = bytes(StringType.serializer().serialize("a message"))
    keys = [b"Ada\0t.fns/f", b"Bob\0t.fns/f"]
    columns = Columns(
        keys, [StringType.typename] * 2, [value] * 2, [None] * 2, [0] * 2, cell=lambda *_: None
    )
    groups = [
        Group(key, columns, row, row + 1, AddressValues(None), True) for row, key in enumerate(keys)
    ]
    next(dispatcher.dispatch(groups, Effects()))
    gc.collect()

    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
