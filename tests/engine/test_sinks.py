# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from typing import Any, cast

import pytest

from statefun import UnknownEgressError, make_json_type
from statefun.engine.sinks import Sink, egress_record
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import TypedValue

MESSAGE = EgressMessage("a/b", TypedValue("a/T", b"1"))


def record_of(result: Any) -> KafkaEgressMessage | None:
    """Send a message to an egress whose kind converts it to ``result``."""
    return egress_record(MESSAGE, {"a/b": Sink(lambda _: result, 100)}, 0)


@pytest.mark.parametrize("result", [b"1", True, False, MESSAGE])
def test_the_result_of_an_egress_kind_is_checked(result: object) -> None:
    """A wrong result is a failure of the function that sends the message; nothing is sent."""
    text = (
        r"the connector of egress a/b has returned .* for a message; it must return a KafkaEgressM"
    )
    with pytest.raises(DefinitionError, match=text):
        record_of(result)


def test_a_record_or_nothing_is_sent() -> None:
    """The kind of the egress decides."""
    record = KafkaEgressMessage("a/b", topic="out", value=b"1")

    assert record_of(record) is record
    assert record_of(None) is None


USER = make_json_type("test.sinks/user")


def write(user: Any) -> KafkaEgressMessage | None:
    """Write the name of a user; drop users without one, and fail or misbehave on request."""
    if user == "fails":
        raise KeyError(user)
    return KafkaEgressMessage("a/b", topic="out", value=user) if user else cast("Any", user)


def serialized(value: Any, typename: str = USER.typename) -> KafkaEgressMessage | None:
    """Send a value to an egress with a serializer."""
    content = USER.serializer().serialize(value)
    message = EgressMessage("a/b", TypedValue(typename, content))
    return egress_record(message, {"a/b": Sink.for_kafka(100, write)}, 0)


def test_a_serializer_makes_records_or_nothing() -> None:
    """Records that functions have made themselves do not go through the serializer."""
    own = KafkaEgressMessage("a/b", topic="own", value=b"1")
    sinks = {"a/b": Sink.for_kafka(100, write)}

    record = serialized("Ada")

    assert record is not None
    assert (record.topic, record.value) == ("out", b"Ada")
    assert serialized(None) is None
    assert egress_record(own, sinks, 0) is own
    wire_form = EgressMessage("a/b", own.typed_value)
    again = egress_record(wire_form, sinks, 0)
    assert again is not None
    assert again.topic == "own"


@pytest.mark.parametrize(
    ("value", "typename", "text"),
    [
        ("fails", USER.typename, "the serializer of egress a/b failed: KeyError: 'fails'"),
        (0, USER.typename, "the serializer of egress a/b has returned 0; it must return a Kafka"),
        ("x", "test.sinks/nobody", "no type named 'test.sinks/nobody' is registered, so the seri"),
        ("x" * 101, USER.typename, "topic out, has 101 bytes with key and headers, but the egre"),
    ],
)
def test_a_value_that_does_not_become_a_record_is_an_error(
    value: Any, typename: str, text: str
) -> None:
    """The error is a failure of the function that has sent the value."""
    with pytest.raises(DefinitionError, match=re.escape(text)):
        serialized(value, typename)


def test_an_egress_that_is_not_declared_is_an_error() -> None:
    """The error lists the declared egresses."""
    with pytest.raises(UnknownEgressError, match=r"egress a/b is not declared .*declared: c/d"):
        egress_record(MESSAGE, {"c/d": Sink.for_kafka()}, 0)
