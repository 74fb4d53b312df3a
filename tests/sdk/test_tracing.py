# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statefun import EgressMessage, KafkaEgressMessage, TypedValue, message_builder
from statefun.sdk.tracing import traced

TRACE = "traceparent=00-1-2-01\nbaggage=a=b"
HEADERS = (("traceparent", b"00-1-2-01"), ("baggage", b"a=b"))


def _headers(message: EgressMessage) -> object:
    assert isinstance(message, KafkaEgressMessage)
    return message.headers


def test_a_trace_becomes_headers_of_records() -> None:
    """A record keeps its own headers of these names; its wire form gets the headers, too."""
    record = KafkaEgressMessage("t/out", topic="x", value="v")
    own = KafkaEgressMessage("t/out", topic="x", value="v", headers={"baggage": "own"})
    wire_form = EgressMessage("t/out", record.typed_value)

    results = [traced(record, TRACE), traced(own, TRACE), traced(wire_form, TRACE)]

    own_headers = (("baggage", b"own"), HEADERS[0])
    assert [_headers(result) for result in results] == [HEADERS, own_headers, HEADERS]
    assert record.headers == ()


def test_a_header_of_a_trace_may_have_other_line_ends() -> None:
    """Only a line feed ends a header: it is never part of the value of one."""
    value = "a=1\r\x0b\x0c\x1c\x85\u2028traceparent=no"
    record = KafkaEgressMessage("t/out", topic="x", value="v")

    sent = traced(record, f"traceparent=00-1-2-01\nbaggage={value}")

    assert _headers(sent) == (("traceparent", b"00-1-2-01"), ("baggage", value.encode()))


def test_a_message_has_its_trace_and_other_values_stay() -> None:
    """The message itself is not changed; a value for another kind of egress has no headers."""
    message = message_builder("t/f", "Ada", str_value="x")
    other = EgressMessage("t/out", TypedValue("t/value", b"1"))

    assert traced(message, TRACE).trace == TRACE
    assert not message.trace
    assert traced(other, TRACE) is other
