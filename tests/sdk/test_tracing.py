# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statefun import EgressMessage, KafkaEgressMessage, TypedValue, message_builder
from statefun.sdk.tracing import traced

TRACE = "traceparent=00-1-2-01\nbaggage=a=b"
HEADERS = (("traceparent", b"00-1-2-01"), ("baggage", b"a=b"))


def test_a_trace_becomes_headers_of_records() -> None:
    """A record keeps its own headers of these names; its wire form gets the headers, too."""
    record = KafkaEgressMessage("t/out", topic="x", value="v")
    own = KafkaEgressMessage("t/out", topic="x", value="v", headers={"baggage": "own"})
    wire_form = traced(EgressMessage("t/out", record.typed_value), TRACE)

    assert traced(record, TRACE).headers == HEADERS
    assert traced(own, TRACE).headers == (("baggage", b"own"), HEADERS[0])
    assert isinstance(wire_form, KafkaEgressMessage)
    assert wire_form.headers == HEADERS
    assert record.headers == ()


def test_a_message_has_its_trace_and_other_values_stay() -> None:
    """The message itself is not changed; a value for another kind of egress has no headers."""
    message = message_builder("t/f", "Ada", str_value="x")
    other = EgressMessage("t/out", TypedValue("t/value", b"1"))

    assert traced(message, TRACE).trace == TRACE
    assert not message.trace
    assert traced(other, TRACE) is other
