# SPDX-License-Identifier: Apache-2.0
"""Event times in fields of values of all formats."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from statefun import (
    Context,
    FunctionError,
    KafkaEgress,
    KafkaIngress,
    Message,
    Retry,
    StatefulFunctions,
    make_json_type,
    secret_type,
    simple_type,
)
from statefun.formats import avro
from statefun.module.recorded_values import RecordedValues
from statefun.sdk.annotations import automatic_type
from statefun.testing import InProcessApplication

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
MILLIS = int(NOON.timestamp() * 1000)
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "reading", "type": "double"},
            {"name": "at", "type": "long"},
            {"name": "card", "type": "string"},
        ],
    }
)
AVRO = {"type": "avro", "schema": SCHEMA}


def application(
    name: str, value_format: dict[str, Any] | None, seen: list[Any], **options: Any
) -> InProcessApplication:
    """Return an application that notes the event times of its messages."""
    functions = StatefulFunctions()

    @functions.bind(
        "com.example/meter", on_failure=Retry(attempts=100, backoff=timedelta(minutes=1))
    )
    def read(ctx: Context, message: Message) -> None:
        message.value()
        seen.append(ctx.event_time)

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_event_time(field="at", max_future=timedelta(days=900))
        .with_topic(
            "in",
            targets=["com.example/meter"],
            value_type=f"com.example/{name}",
            **({} if value_format is None else {"valueFormat": value_format}),
            **options,
        )
    )
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_option("deadLetterTopic", "dead")
    )
    return InProcessApplication(functions=functions, components=[ingress.build(), egress.build()])


def errors(app: InProcessApplication) -> list[str]:
    """Return the error texts of the dead letters."""
    return [
        (record.headers["statefun-error-message"] or b"").decode() for record in app.egress("dead")
    ]


@pytest.mark.parametrize("reading", [0.86, 999.86])
def test_a_value_of_another_format_may_begin_like_json(reading: float) -> None:
    """In Avro, each 25th number of two decimals has a first byte that is an opening brace."""
    seen: list[Any] = []
    app = application("Braced", AVRO, seen)

    app.produce("in", "k", avro.encode({"reading": reading, "at": MILLIS, "card": "1"}, SCHEMA))
    app.drain()

    assert (seen, errors(app)) == ([NOON], [])


def test_transforms_of_avro_do_not_hide_the_field() -> None:
    """The field is read with the type of the topic's values, whether transforms change the values or not."""
    seen: list[Any] = []
    transforms = [{"type": "MaskField$Value", "fields": "card"}]
    app = application("Masked", AVRO, seen, transforms=transforms)

    app.produce("in", "k", avro.encode({"reading": 0.5, "at": MILLIS, "card": "1"}, SCHEMA))
    app.drain()

    assert (seen, errors(app)) == ([NOON], [])


def test_the_field_is_one_of_the_payload() -> None:
    """With schemasEnable, the value of a record is its payload, which functions get."""
    seen: list[Any] = []
    app = application("Enveloped", {"type": "json", "schemasEnable": True}, seen)
    schema = {"type": "struct", "fields": [{"field": "at", "type": "int64"}]}

    app.produce("in", "k", json.dumps({"schema": schema, "payload": {"at": MILLIS}}))
    app.drain()

    assert (seen, errors(app)) == ([NOON], [])


def test_a_registry_that_does_not_answer_makes_no_record_bad() -> None:
    """The failure policy of the function decides, as it does without an event time in a field."""
    seen: list[Any] = []
    properties = [{"max.retries": "0"}, {"timeout": "1"}]
    registry = {"type": "schema-registry", "url": "http://localhost:1", "properties": properties}
    app = application("Registered", registry, seen)

    app.produce("in", "k", b"\0\0\0\0\1abc")
    app.drain()

    assert errors(app) == []


def test_a_record_that_is_tried_again_has_its_event_time() -> None:
    """A service that the type needs did not answer at first: until it does, the field cannot be read."""
    seen: list[Any] = []
    is_up = list[bool]()

    def decode(content: bytes) -> Any:
        if not is_up:
            raise FunctionError("the registry does not answer")
        return {"at": int(content)}

    simple_type("com.example/Asking", lambda value: b"%d" % value["at"], decode)
    app = application("Asking", None, seen)

    app.produce("in", "k", b"%d" % MILLIS)
    app.drain()
    assert (seen, errors(app)) == ([], [])
    is_up.append(True)
    app.advance(minutes=1)
    app.drain()

    assert (seen, errors(app)) == ([NOON], [])


@pytest.mark.parametrize("content", [b'{"at": %d, "other": 1}' % MILLIS, b"{%d" % MILLIS])
def test_values_of_a_type_without_a_format_are_json_or_what_the_type_decodes(
    content: bytes,
) -> None:
    """A class of the program need not have all fields of a JSON object, such as the one with the time."""

    @dataclass
    class Timed:
        at: int

    def decode(read: bytes) -> Any:
        return object() if read.endswith(b"}") else Timed(int(read[1:]))

    simple_type("com.example/Unknown", lambda _: b"", decode)
    seen: list[Any] = []
    app = application("Unknown", None, seen)

    app.produce("in", "k", content)
    app.drain()

    assert (seen, errors(app)) == ([NOON], [])


@dataclass
class Secret:
    """A value that nobody must see."""

    at: str


@dataclass
class Holder:
    """A class without a type, whose part is secret."""

    secret: Secret


def test_values_with_a_secret_part_are_secret() -> None:
    """Also if nobody has registered a type of their class."""
    secret_type(make_json_type("com.example/Secret", Secret))
    values = RecordedValues(automatic_type(Holder).typename)

    assert values.are_secret


def test_the_field_of_a_secret_value_is_not_shown_if_transforms_change_the_value() -> None:
    """It is not shown without transforms, either."""
    secret_type(make_json_type("com.example/Secret", Secret))
    for options in ({}, {"transforms": [{"type": "InsertField$Value", "topic.field": "topic"}]}):
        app = application("Secret", {"type": "json"}, [], **options)
        app.produce("in", "k", json.dumps({"at": "4111-1111"}))
        app.drain()
        assert not [text for text in errors(app) if "4111-1111" in text]
