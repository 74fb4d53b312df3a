# SPDX-License-Identifier: Apache-2.0
"""What the handlers of joins get, and what an address keeps of the records that wait."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from statefun import (
    Address,
    Context,
    KafkaEgress,
    KafkaIngress,
    Message,
    StatefulFunctions,
    secret_type,
    simple_type,
)
from statefun.joins import joined, joined_as_of
from statefun.joins.buffered import BUFFERED, Buffer
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import IN_WINDOW
from statefun.sdk.values import Values
from statefun.testing import InProcessApplication

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@dataclass
class Paid:
    """A record of the second stream."""

    amount: float


@dataclass
class Rate:
    """A record with what is valid from its time on."""

    euros: float


def test_a_handler_that_takes_messages_gets_messages_in_any_order() -> None:
    """A record that has waited for its partner is of the same class as one that has come after it."""
    functions, seen = StatefulFunctions(), list[Any]()

    @joined("com.example/paid", after=timedelta(minutes=1), functions=functions)
    def pay(ctx: Context, order: Message, payment: Paid) -> None:
        seen.append(isinstance(order, Message))

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_event_time(max_future=timedelta(days=900))
        .with_topic("orders", targets=["com.example/paid"], valueFormat={"type": "text"})
        .with_topic(
            "payments",
            targets=["com.example/paid"],
            value_type="com.example/Paid",
            valueFormat={"type": "json"},
        )
    )
    app = InProcessApplication(functions=functions, components=[ingress.build()])
    records = {"orders": "socks", "payments": json.dumps({"amount": 1.5})}
    for key, topics in {"a": ("payments", "orders"), "b": ("orders", "payments")}.items():
        for topic in topics:
            app.produce(topic, key, records[topic], timestamp=NOON)
            app.drain()

    assert seen == [True, True]


class _Written(dict[str, Any]):
    """Counts how often the list of waiting records is written."""

    lists = 0

    def __setitem__(self, name: str, value: Any) -> None:
        self.lists += name == BUFFERED.name
        super().__setitem__(name, value)


def test_the_list_is_written_once_for_all_partners_of_a_record() -> None:
    """Otherwise a record with n partners would cost n times the bytes of the list."""
    values = Values({}, {})
    buffer = Buffer(values)
    for time in (5, 1, 1, 3, 1, 7):
        buffer.add(time, 9, TypedValue("a/b", b""), is_left=True, is_matched=False)
    values.changed = written = _Written(values.changed)

    buffer.match(buffer.between(1, 3))
    buffer.match(buffer.between(1, 3))

    assert written.lists == 1
    assert [(each.time, each.number, each.is_matched) for each in buffer.between(0, 9)] == [
        (1, 4, True),
        (1, 2, True),
        (1, 1, True),
        (3, 3, True),
        (5, 0, False),
        (7, 5, False),
    ]


def test_rates_that_no_later_order_can_find_are_forgotten() -> None:
    """An order finds the newest rate before it, so that rates before the watermark except for the newest are of no use."""
    functions, converted = StatefulFunctions(), list[Any]()

    @joined_as_of("com.example/prices", within=timedelta(days=1), functions=functions)
    def convert(ctx: Context, order: Paid, rate: Rate) -> None:
        converted.append((order.amount, rate.euros))

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_event_time(max_future=timedelta(days=900), when_all_idle="follow")
    )
    for topic in ("Paid", "Rate"):
        ingress.with_topic(
            topic,
            targets=["com.example/prices"],
            value_type=f"com.example/{topic}",
            valueFormat={"type": "json"},
        )
    app = InProcessApplication(functions=functions, components=[ingress.build()])
    app.advance(NOON - app.now)
    for second in range(400):
        app.produce(
            "Rate", "USD", json.dumps({"euros": second}), timestamp=NOON + timedelta(seconds=second)
        )
        if second % 50 == 49:
            app.produce(
                "Paid",
                "other",
                json.dumps({"amount": 1}),
                timestamp=NOON + timedelta(seconds=second),
            )
            app.drain()

    app.produce("Paid", "USD", json.dumps({"amount": 2}), timestamp=NOON + timedelta(seconds=396.5))
    app.drain()
    app.advance(hours=1)
    app.drain()

    assert converted == [(2, 396)]
    kept = {*app.state(Address("com.example/prices", "USD"))}
    assert kept <= {BUFFERED.name, *(f"right{IN_WINDOW}{number}" for number in range(396, 400))}


@dataclass
class Refund:
    """Another record of the first stream."""

    amount: float


def test_on_unmatched_gets_only_the_values_that_it_takes() -> None:
    """A handler of one class of a stream of two classes is not called with values of the other one."""
    functions, seen = StatefulFunctions(), list[Any]()

    @joined("com.example/both", after=timedelta(minutes=1), functions=functions)
    def pay(ctx: Context, payment: Paid | Refund, rate: Rate) -> None:
        pass

    @pay.on_unmatched
    def alone(ctx: Context, payment: Paid) -> None:
        seen.append(type(payment).__name__)

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_event_time(max_future=timedelta(days=900), when_all_idle="follow")
    )
    for topic in ("Paid", "Refund", "Rate"):
        ingress.with_topic(
            topic,
            targets=["com.example/both"],
            value_type=f"com.example/{topic}",
            valueFormat={"type": "json"},
        )
    app = InProcessApplication(functions=functions, components=[ingress.build()])
    app.advance(NOON - app.now)
    for topic in ("Paid", "Refund"):
        app.produce(topic, "k", json.dumps({"amount": 1.0}), timestamp=NOON)
    app.drain()
    app.advance(hours=1)
    app.drain()

    assert seen == ["Paid"]


def test_the_value_of_a_waiting_record_is_not_shown_if_it_is_secret() -> None:
    """A newer program may not decode what an older one has stored; the error must not quote it."""
    functions, is_new = StatefulFunctions(), list[bool]()

    class Pin:
        pass

    def decode(content: bytes) -> Pin:
        if is_new:
            raise ValueError(f"no pin: {content!r}")
        return Pin()

    secret_type(simple_type("test.joined-values/Pin", lambda _: b"", decode, python_type=Pin))

    @joined("com.example/pins", after=timedelta(minutes=1), functions=functions)
    def pay(ctx: Context, pin: Pin, rate: Rate) -> None:
        pass

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_event_time(max_future=timedelta(days=900))
        .with_topic("pins", targets=["com.example/pins"], value_type="test.joined-values/Pin")
        .with_topic(
            "rates",
            targets=["com.example/pins"],
            value_type="com.example/Rate",
            valueFormat={"type": "json"},
        )
    )
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_option("deadLetterTopic", "dead")
    )
    app = InProcessApplication(functions=functions, components=[ingress.build(), egress.build()])
    app.produce("pins", "k", b"1234-5678", timestamp=NOON)
    app.drain()
    is_new.append(True)
    app.produce("pins", "other", b"8765-4321", timestamp=NOON)
    app.produce("rates", "k", json.dumps({"euros": 0.5}), timestamp=NOON)
    app.drain()

    shown = [
        value.decode(errors="replace")
        for letter in app.egress("dead")
        for name, value in letter.headers.items()
        if value is not None
    ]
    assert not [text for text in shown if "8765-4321" in text]
    assert not [text for text in shown if "1234-5678" in text]
