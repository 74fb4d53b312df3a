# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    FunctionError,
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


@functions.bind("test.one/reminding")
def remind(ctx: Context, commands: str) -> None:
    """Send (s), send at once (0), send at an event time (e) or cancel (c) with the same token."""
    for command in commands:
        if command == "c":
            ctx.cancel_delayed_message("token")
        elif command == "e":
            ctx.send_at(datetime(2026, 1, 1, tzinfo=timezone.utc), OTHER, command, "token")
        else:
            delay = timedelta(minutes=5 if command == "s" else 0)
            ctx.send_after(delay, OTHER, command, "token")


@pytest.mark.parametrize("calls", ["ss", "s s", "css", "e s", "s csc ss", "cs s"])
def test_a_token_of_a_pending_message_cannot_be_used_again(calls: str) -> None:
    """As in an application; the call that does it has no effects."""
    *before, last = calls.split()
    context = TestContext(remind, functions=functions)
    for each in before:
        context.deliver(each)
    delayed, cancelled = [*context.delayed], [*context.cancelled]

    with pytest.raises(FunctionError, match="'token', which the id id already uses"):
        context.deliver(last)

    assert (context.delayed, context.cancelled) == (delayed, cancelled)


@pytest.mark.parametrize("calls", ["s", "scs", "s cs", "sc s c s", "00 0s", "s c 0 s"])
def test_a_token_can_be_used_again_when_its_message_is_cancelled_or_due(calls: str) -> None:
    """In the same call, and in later ones."""
    context = TestContext(remind, functions=functions)

    for each in calls.split():
        context.deliver(each)

    assert len(context.delayed) == sum(each in "s0" for each in calls)


def test_a_delayed_message_that_a_test_removes_is_not_pending() -> None:
    """The test has delivered it, for example."""
    context = TestContext(remind, functions=functions)
    context.deliver("s")
    context.delayed.clear()
    context.deliver("s")
    context.delayed = []

    context.deliver("s")

    assert len(context.delayed) == 1


def test_an_event_time_that_the_watermark_has_passed_is_due() -> None:
    """As in an application: the message is on its way."""
    context = TestContext(remind, functions=functions)
    context.deliver("e", watermark=datetime(2025, 1, 1, tzinfo=timezone.utc))

    context.deliver("s", watermark=datetime(2026, 1, 1, tzinfo=timezone.utc))

    assert len(context.delayed) == 2


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ({"caller": "test.one/other/Ada"}, 'Address\\("test.one/other", "Ada"\\), not'),
        ({"record": b"value"}, "must be an IngressRecord, not b'value'"),
        ({"event_time": 5}, "the event_time must be a datetime with a time zone, .* not 5"),
        ({"watermark": datetime(2026, 1, 1)}, "the watermark must be .* with a time zone"),  # noqa: DTZ001 - the mistake
    ],
)
def test_wrong_arguments_of_deliver_are_told(argument: dict[str, Any], text: str) -> None:
    """Before the function is called."""
    context = TestContext(ask, functions=functions)

    with pytest.raises(DefinitionError, match=text):
        context.deliver(1, **argument)

    assert context.sent == []
