# SPDX-License-Identifier: Apache-2.0
"""A message or record is sent as it is at the time of ``ctx.send``, whatever the function makes of it later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from statefun import (
    Context,
    DefinitionError,
    EgressMessage,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    KinesisEgressMessage,
    Message,
    OnFailure,
    StatefulFunctions,
    message_builder,
)
from statefun.testing import InProcessApplication
from statefun.testing import TestContext as OneFunction

OUT = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1").build()
ORDERS = (
    KafkaIngress.for_id("test/orders")
    .with_kafka_address("localhost:1")
    .with_topic("orders", value_type="io.statefun.types/string", targets=["test/f"])
    .with_consumer_group_id("g")
    .build()
)


@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-1-2-01"}])
def test_a_message_can_be_changed_and_sent_again(headers: dict[str, str]) -> None:
    """Each message goes to the target that it had when it was sent, with or without trace headers."""
    functions = StatefulFunctions()
    received: list[Any] = []

    @functions.bind("test/sink")
    def sink(ctx: Context, number: int) -> None:
        received.append(ctx.address.id)

    @functions.bind("test/f", on_failure=OnFailure.SKIP)
    def fan_out(ctx: Context, message: Message) -> None:
        one = message_builder("test/sink", "?", long_value=1)
        for each in "abc":
            one.target_id = each
            ctx.send(one)
            one.target_id += "-later"
            ctx.send_after(timedelta(0), one)
        assert (one.trace, one.event_time) == (None, None)
        record = KafkaEgressMessage("test/out", topic="out", value="1")
        ctx.send(record)
        record.value = b"2"
        ctx.send(record)

    app = InProcessApplication(functions=functions, components=[OUT, ORDERS])
    app.produce("orders", "Ada", "x", headers=headers)
    app.advance(seconds=1)

    assert sorted(received) == ["a", "a-later", "b", "b-later", "c", "c-later"]
    assert [record.text for record in app.egress("out")] == ["1", "2"]


MESSAGE_CHANGES = [
    ("target_id", 5, "needs an id, which must be a string that is not empty, not 5"),
    ("target_id", "", "needs an id, which must be a string that is not empty, not ''"),
    ("target_id", "\ud800", "which UTF-8 cannot encode"),
    ("target_typename", "sink", "sink"),
]
RECORD_CHANGES = [
    ("typename", "out", "out"),
    ("topic", "no topic", "'no topic' is not a name of a topic"),
    ("topic", None, "needs a topic, not None"),
    ("key", b"Ada", "its key must be a string or None, not b'Ada'"),
    ("key", "\ud800", "is not valid Unicode"),
    ("value", [], "a value of class list needs a value_type"),
    ("headers", [("a", 5)], "header 'a' cannot have a value of class int"),
    ("headers", (("a", 5),), "header 'a' cannot have a value of class int"),
    ("headers", ("abc",), "headers must be names with values"),
    ("partition", -1, "the partition must be a number"),
    ("timestamp", datetime(2026, 1, 1), "a datetime with a time zone"),  # noqa: DTZ001 - none
]


@pytest.mark.parametrize(
    ("name", "value", "text", "make"),
    [
        *(
            (*each, lambda: message_builder("test/f", "a", long_value=1))
            for each in MESSAGE_CHANGES
        ),
        *(
            (*each, lambda: KafkaEgressMessage("test/out", topic="out", value="1"))
            for each in RECORD_CHANGES
        ),
    ],
)
def test_an_invalid_change_fails_where_the_message_is_sent(
    name: str, value: Any, text: str, make: Callable[[], Any]
) -> None:
    """So it is a failure of the function, whose policy decides, and does not end the application."""
    functions = StatefulFunctions()
    caught: list[str] = []

    @functions.bind("test/f", on_failure=OnFailure.SKIP)
    def send(ctx: Context, message: Message) -> None:
        changed = make()
        setattr(changed, name, value)
        try:
            ctx.send(changed)
        except DefinitionError as error:
            caught.append(error.message)
            raise

    app = InProcessApplication(functions=functions, components=[OUT])
    app.send("test/f", "Ada", 1)
    app.drain()

    [error] = caught
    assert text in error
    assert len(app.skipped) == 1


def test_records_of_other_egresses_can_be_changed_and_sent_again() -> None:
    """A record for Kinesis, and a value that the serializer of its egress encodes."""
    functions = StatefulFunctions()

    @functions.bind("test/f")
    def send(ctx: Context, message: Message) -> None:
        record = KinesisEgressMessage("test/a", stream="s", value="1", partition_key="k")
        value = EgressMessage("test/b", message.typed_value)
        for each in (record, value):
            ctx.send(each)
            each.typename = "test/c"
            ctx.send(each)

    context = OneFunction("test/f", "Ada", functions=functions)
    context.deliver("x")

    assert [len(context.egress_of(each)) for each in ("test/a", "test/b", "test/c")] == [1, 1, 2]


@pytest.mark.parametrize(
    ("name", "value", "sent"),
    [("value", "é", "é".encode()), ("key", "é", "é"), ("headers", {"a": "b"}, {"a": b"b"})],
)
def test_a_valid_change_is_encoded_as_a_new_record_is(name: str, value: Any, sent: Any) -> None:
    """A text that a function assigns is sent in UTF-8, and a mapping becomes headers."""
    functions = StatefulFunctions()

    @functions.bind("test/f")
    def send(ctx: Context, message: Message) -> None:
        record = KafkaEgressMessage("test/out", topic="out", value="1")
        setattr(record, name, value)
        ctx.send(record)

    context = OneFunction("test/f", "Ada", functions=functions)
    context.deliver("x")

    [record] = context.egress
    assert getattr(record, name) == sent
