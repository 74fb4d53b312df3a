# SPDX-License-Identifier: Apache-2.0
"""The types that the value formats of topics register."""

from __future__ import annotations

import json
from typing import Any

import pytest

from statefun import (
    Context,
    KafkaEgress,
    KafkaIngress,
    Message,
    StatefulFunctions,
    make_json_type,
    secret_type,
)
from statefun.formats.avro import encode, make_avro_type
from statefun.sdk.types import Type
from statefun.testing import InProcessApplication

SCHEMA = json.dumps(
    {"type": "record", "name": "Login", "fields": [{"name": "password", "type": "string"}]}
)
VALUE = {"password": "4111-1111"}


def _avro(typename: str) -> Type[Any]:
    return make_avro_type(typename, SCHEMA)


@pytest.mark.parametrize(
    ("name", "make", "value_format", "value"),
    [
        ("Json", make_json_type, {"type": "json"}, json.dumps(VALUE).encode()),
        ("Avro", _avro, {"type": "avro", "schema": SCHEMA}, encode(VALUE, SCHEMA)),
    ],
)
def test_a_secret_type_stays_secret_if_a_topic_has_its_format(
    name: str, make: Any, value_format: dict[str, Any], value: bytes
) -> None:
    """The dead letter of a record is marked, so that 'statefun dlq' does not show its value."""
    typename = f"test.value-types/{name}"
    secret_type(make(typename))
    functions = StatefulFunctions()

    @functions.bind("com.example/login")
    def log_in(ctx: Context, message: Message) -> None:
        raise ValueError("not now")

    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic(
            "in", targets=["com.example/login"], value_type=typename, valueFormat=value_format
        )
    )
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_option("deadLetterTopic", "dead")
    )
    app = InProcessApplication(functions=functions, components=[ingress.build(), egress.build()])
    app.produce("in", "k", value)
    app.drain()

    [letter] = app.egress("dead")
    assert letter.headers.get("statefun-secret") == b"yes"
