# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun import KafkaIngress
from statefun.engine.letters import PROBLEM_HEADER
from statefun.engine.record_keys import NULL_KEY, UNDECODABLE_KEY, UNTRANSFORMABLE
from statefun.engine.record_routes import RecordRoutes
from statefun.engine.rejections import rejected
from statefun.module.location import Location
from statefun.module.topic_routes import TopicRoute
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.address import TypeName
from statefun.sdk.types import SimpleType, default_types

TYPES = {
    "texts": None,
    "numbers": TypeName("io.statefun.kafka", "int"),
    "nameless": TypeName("t", "nameless"),
}
ROUTES = RecordRoutes(
    {
        number: TopicRoute(
            topic, TypeName("t", "value"), (), Location("module.yaml", 1, 1), key_type=key_type
        )
        for number, (topic, key_type) in enumerate(TYPES.items(), start=1)
    }
)


@pytest.mark.parametrize(
    ("topic", "key", "reason"),
    [
        (
            "texts",
            b"A\xff",
            "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte",
        ),
        ("numbers", b"123", "ValueError: a number of 4 bytes cannot be decoded from 3 bytes"),
        (
            "of an earlier module file",
            b"\xfe",
            "'utf-8' codec can't decode byte 0xfe in position 0",
        ),
    ],
)
def test_the_reason_why_a_key_was_not_decoded_is_reported(
    topic: str, key: bytes, reason: str
) -> None:
    """The dead letter has the error text of the key's type."""
    error = rejected(UNDECODABLE_KEY, RecordOrigin(topic=topic, key=key), None, ROUTES)

    assert error.message.startswith(
        "the record's key is not valid UTF-8, which the id of an address"
    )
    assert reason in error.message


def test_a_key_that_is_decoded_now_has_no_reason() -> None:
    """A type that asks a service may have failed for a moment; without a key there is nothing to repeat."""
    seven = RecordOrigin(topic="numbers", key=(7).to_bytes(4, "big"))

    assert rejected(UNDECODABLE_KEY, seven, None, ROUTES).message.endswith("the topic's keyType")
    assert rejected("null-key", None, None, ROUTES).message.startswith("the record has no key")


class NamelessError(Exception):
    """An error whose ``str()`` raises."""

    def __str__(self) -> str:
        raise ValueError


def test_an_error_without_a_text_is_a_reason_as_well() -> None:
    """The record is rejected like any other, and no exception ends the task."""

    def fail(_: bytes) -> str:
        raise NamelessError

    default_types.add(SimpleType("t/nameless", str.encode, fail))
    error = rejected(UNDECODABLE_KEY, RecordOrigin(topic="nameless", key=b"x"), None, ROUTES)

    assert error.message.endswith("keyType: NamelessError: (its text cannot be shown)")


def test_the_reader_of_a_connector_gives_its_own_reason() -> None:
    """Without an origin, only the kind of the rejection is known."""
    origin = RecordOrigin(topic="rows")
    origin.headers.add(key=PROBLEM_HEADER, value=b"line 3 is not JSON")

    assert rejected(NULL_KEY, origin, None, ROUTES).message == "line 3 is not JSON"
    assert "no key" in rejected(NULL_KEY, RecordOrigin(topic="rows"), None, ROUTES).message
    assert rejected(NULL_KEY, None, None, ROUTES).code == "SF400"


def test_a_transform_that_fails_on_a_key_gives_the_reason() -> None:
    """The transforms of the record's route are applied once more."""
    builder = KafkaIngress.for_id("t/in").with_kafka_address("localhost:1")
    ingress = builder.with_consumer_group_id("g").with_topic(
        "orders",
        targets=["t/f"],
        value_type="t/order",
        valueFormat={"type": "json"},
        transforms=[
            {"type": "ValueToKey", "fields": "id"},
            {"type": "ExtractField$Key", "field": "id"},
            {"type": "Cast$Key", "spec": "int32"},
        ],
    )
    [route] = ingress.build().topics
    origin = RecordOrigin(topic="orders", partition=1, offset=2, timestamp=3, route=1)

    error = rejected(UNTRANSFORMABLE, origin, b'{"id": "seven"}', RecordRoutes({1: route}))

    assert "transforms[2], Cast" in error.message
    assert "a text cannot be cast to int32" in error.message
