# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    EgressMessage,
    IntType,
    KafkaEgressMessage,
    TypedValue,
    message_builder,
)
from statefun.sdk.sent import Cancellation, DelayedMessage, Sent
from statefun.sdk.values import Values

ADDRESS = Address("com.example.fns", "greeter", "Ada")
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def sent() -> Sent:
    """Return the messages that the context's function has sent."""
    return Sent()


@pytest.fixture
def context(sent: Sent) -> Context:
    """Return the context of a function that keeps no values."""
    return Context(ADDRESS, Values({}, {}), sent)


def _record(value: str) -> KafkaEgressMessage:
    return KafkaEgressMessage("com.example/greets", topic="greetings", value=value)


def test_a_context_starts_without_effects() -> None:
    """It has its address and storage, no caller yet, and no sent messages."""
    sent = Sent()
    context = Context(ADDRESS, Values({}, {}), sent)

    assert context.address is ADDRESS
    assert dir(context.storage) == []
    assert context.caller is None
    assert sent.messages == []
    assert sent.delayed == []
    assert sent.egress_messages == []


def test_what_is_sent_is_kept_in_order(context: Context, sent: Sent) -> None:
    """Messages to functions and to egresses are two lists, each in the order of sending."""
    first, second = (message_builder(ADDRESS.typename, name, int_value=1) for name in "ab")
    record, other = _record("Hello"), EgressMessage("a/b", TypedValue(IntType.typename, b""))

    context.send(first)
    context.send(record)
    context.send(second)
    context.send_egress(other)

    assert [each.target_id for each in sent.messages] == ["a", "b"]
    assert [each.typed_value for each in sent.egress_messages] == [
        record.typed_value,
        other.typed_value,
    ]


def test_a_message_and_a_value_are_not_delayed_together(context: Context, sent: Sent) -> None:
    """A value in the place of the token is the token; beside a token, it is a mistake."""
    message: Any = message_builder(ADDRESS.typename, "a", int_value=1)
    minute = timedelta(minutes=1)
    context.send_after(minute, message, "call")
    with pytest.raises(DefinitionError, match="takes a value only with an Address"):
        context.send_after(minute, message, "value", "call")

    [delayed] = sent.delayed
    assert isinstance(delayed, DelayedMessage)
    assert (delayed.delay, delayed.cancellation_token) == (minute, "call")
    assert delayed.message.typed_value == message.typed_value


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Hello", "send takes a Message, an EgressMessage, or an Address and a value, not str"),
        (None, "send takes a Message, an EgressMessage, or an Address and a value, not NoneType"),
        (
            KafkaEgressMessage.for_egress("com.example/greets"),
            "send takes a Message, an EgressMessage, or an Address and a value, not KafkaEgressMessageBuilder; call its .build()",
        ),
    ],
    ids=["text", "none", "builder"],
)
def test_other_things_cannot_be_sent(context: Context, sent: Sent, message: Any, text: str) -> None:
    """The error names the type, and the step that was forgotten."""
    with pytest.raises(DefinitionError) as raised:
        context.send(message)
    with pytest.raises(DefinitionError) as raised_by_alias:
        context.send_egress(message)

    assert raised.value.message == raised_by_alias.value.message == text
    assert sent.messages == []
    assert sent.egress_messages == []


def test_a_context_takes_no_other_attributes(context: Context) -> None:
    """State belongs into the storage: attributes of the context would be lost."""
    with pytest.raises(AttributeError):
        context.visits = 1  # type: ignore[attr-defined]


LATER = message_builder("a/b", "x", int_value=1)


def test_delays_and_cancellations_are_kept_in_order(context: Context, sent: Sent) -> None:
    """A cancellation counts for messages that were sent before it."""
    context.send_after(timedelta(0), LATER)
    context.send_after(timedelta(days=1), LATER, "token")
    context.send_after(timedelta(days=1), LATER, None)
    context.cancel_delayed_message("token")

    *delayed, cancellation = sent.delayed
    parts = [
        (each.delay, each.message.target_id, each.cancellation_token)
        for each in delayed
        if isinstance(each, DelayedMessage)
    ]
    assert parts == [
        (timedelta(0), "x", ""),
        (timedelta(days=1), "x", "token"),
        (timedelta(days=1), "x", ""),
    ]
    assert cancellation == Cancellation("token")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (timedelta(-1), LATER),
            "the duration for send_after must be a timedelta from zero to a thousand years, not ",
        ),
        (
            (5, LATER),
            "the duration for send_after must be a timedelta from zero to a thousand years, not 5",
        ),
        ((timedelta(1), "Hello"), "send_after takes a Message, or an Address and a value, not str"),
        (
            (timedelta(1), KafkaEgressMessage.for_egress("a/b")),
            "send_after takes a Message, or an Address and a value, not KafkaEgressMessageBuilder; call its .build()",
        ),
        ((timedelta(1), LATER, 7), "a cancellation token must be a string, not 7"),
        ((timedelta(1), LATER, "\ud800"), "a cancellation token must be a string, not "),
    ],
    ids=["negative", "number", "text", "builder", "token", "surrogate"],
)
def test_other_things_cannot_be_delayed(
    context: Context, sent: Sent, arguments: tuple[Any, ...], text: str
) -> None:
    """A delay is not negative, and only messages to functions can be delayed."""
    with pytest.raises(DefinitionError) as raised:
        context.send_after(*arguments)

    assert raised.value.message.startswith(text)
    assert sent.delayed == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((datetime(2026, 1, 1), LATER), "the time for send_at must be a datetime with a time zone"),  # noqa: DTZ001 - the case
        ((5, LATER), "the time for send_at must be a datetime with a time zone, not 5"),
        ((NOON, "Hello"), "send_at takes a Message, or an Address and a value, not str"),
        ((NOON, LATER, 7), "a cancellation token must be a string, not 7"),
    ],
    ids=["zone", "number", "text", "token"],
)
def test_other_things_cannot_be_sent_at_an_event_time(
    sent: Sent, arguments: tuple[Any, ...], text: str
) -> None:
    """Wrong arguments have the same error, whether the engine is compiled or not."""
    context = Context(ADDRESS, Values({}, {}), sent, has_event_times=True)
    with pytest.raises(DefinitionError) as raised:
        context.send_at(*arguments)

    assert raised.value.message.startswith(text)
    assert sent.delayed == []


@pytest.mark.parametrize("token", ["", None, 7, "\ud800"])
def test_other_things_cannot_be_cancelled(context: Context, sent: Sent, token: Any) -> None:
    """Only messages with a token can be cancelled, so the token is not empty."""
    with pytest.raises(
        DefinitionError, match="the token of the message to cancel must be a string"
    ):
        context.cancel_delayed_message(token)

    assert sent.delayed == []


def test_functions_see_what_they_need() -> None:
    """The messages that the runtime collects are no public attributes of a context."""
    assert [name for name in dir(Context) if not name.startswith("_")] == [
        "address",
        "caller",
        "cancel_delayed_message",
        "event_time",
        "logger",
        "record",
        "send",
        "send_after",
        "send_at",
        "send_egress",
        "storage",
        "watermark",
    ]
