# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import attrs
import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    IngressRecord,
    IntType,
    KafkaEgressMessage,
    Message,
    State,
    StatefulFunctions,
    StringType,
    UnexpectedValueError,
    ValueSpec,
    kinesis_egress_message,
    message_builder,
)
from statefun.sdk.encoding import typed
from statefun.testing import DelayedMessage, PublishedRecord, SentMessage, TestContext

functions = StatefulFunctions()
OTHER = Address("test.one/other", "Ada")


@attrs.frozen
class Login:
    """A value of a class."""

    user: str


class Visits(State):
    """What is kept."""

    visits: int = 0
    last: Login | None = None


@functions.bind("test.one/greeter", [ValueSpec("plain", IntType)])
async def greet(ctx: Context, login: Login, state: Visits) -> None:
    """Use everything that a context offers."""
    await asyncio.sleep(0)
    state.visits += 1
    state.last = login
    ctx.storage.plain = 5
    ctx.send(OTHER, login)
    ctx.send_after(timedelta(minutes=5), OTHER, "later", "token")
    ctx.cancel_delayed_message("earlier")
    ctx.send(KafkaEgressMessage("test.one/out", topic="greetings", key=login.user, value="Hi"))
    ctx.send(
        kinesis_egress_message(
            typename="test.one/kinesis", stream="s", partition_key="k", value="v"
        )
    )


@greet.on(int)
def fail(ctx: Context, number: int, state: Visits) -> None:
    """Do something, and fail."""
    state.visits += number
    ctx.send(OTHER, number)
    raise ZeroDivisionError


@functions.bind("test.one/asks")
def ask(ctx: Context, message: Message) -> None:
    """Tell who has sent what."""
    offset = ctx.record.offset if ctx.record else None
    ctx.send(message_builder("test.one/other", "x", str_value=f"{ctx.caller} {offset}"))


def test_everything_that_a_function_does_is_there() -> None:
    """In the order in which it was done, decoded."""
    context = TestContext(greet, "Ada", state=Visits(visits=2), functions=functions)

    context.deliver(Login("Ada"))

    assert context.state == {"last": Login("Ada"), "plain": 5, "visits": 3}
    assert context.sent == [SentMessage(OTHER, Login("Ada"))]
    assert context.delayed == [DelayedMessage(timedelta(minutes=5), OTHER, "later", "token")]
    assert context.cancelled == ["earlier"]
    assert context.egress_of("test.one/out") == [PublishedRecord(b"Hi", "Ada")]
    assert len(context.egress) == 2


def test_a_failed_call_has_no_effects_and_raises() -> None:
    """What it raised, as it is."""
    context = TestContext("test.one/greeter", "Ada", state={"visits": 2}, functions=functions)

    with pytest.raises(ZeroDivisionError):
        context.deliver(7)
    with pytest.raises(UnexpectedValueError):
        context.deliver("text")

    assert context.state == {"visits": 2}
    assert context.sent == []


def test_callers_and_records_can_be_given() -> None:
    """As a message's context."""
    context = TestContext(ask, functions=functions)
    record = IngressRecord("users", 0, 42, datetime.now(timezone.utc), ())

    context.deliver(1, caller=OTHER)
    context.deliver(message_builder("any/target", "x", int_value=1), record=record)

    assert [each.value for each in context.sent] == ["test.one/other/Ada None", "None 42"]


def test_tests_may_be_coroutines() -> None:
    """A coroutine function is called although a loop runs already."""

    async def test() -> None:
        context = TestContext(greet, functions=functions)
        context.deliver(Login("Ada"))
        assert context.state["visits"] == 1

    asyncio.run(test())


def test_mistakes_are_told() -> None:
    """A function that is not registered, and values that it does not keep."""
    with pytest.raises(DefinitionError, match="is not registered"):
        TestContext(test_mistakes_are_told, functions=functions)
    with pytest.raises(DefinitionError, match="stores no value 'vists'"):
        TestContext(greet, state={"vists": 1}, functions=functions)
    with pytest.raises(DefinitionError, match="value 'visits': 'x' does not encode"):
        TestContext(greet, state={"visits": "x"}, functions=functions)


def test_stored_values_may_have_former_names_and_types() -> None:
    """A test of an upgrade begins with what an earlier version has stored."""
    renaming = StatefulFunctions()

    @renaming.bind(
        "t.fns/f",
        specs=[ValueSpec("now", StringType, renamed_from="was", upgrades={IntType: str})],
    )
    def handle(ctx: Context, message: Message) -> None:
        ctx.storage.now += "!"

    context = TestContext(handle, state={"was": typed(3, IntType)}, functions=renaming)
    before = context.state
    context.deliver("text")

    assert before == {"was": "3"}
    assert context.state == {"now": "3!"}
