# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timezone

from statefun import (
    Address,
    Context,
    EgressMessage,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    TypedValue,
    message_builder,
)
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.record import IngressRecord
from statefun.sdk.tracing import traced, with_trace

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


def test_each_header_of_a_name_is_replaced() -> None:
    """A dead letter may have several headers of one name, as Kafka allows."""
    headers = [("traceparent", b"00-1-2-01"), ("a", b"1"), ("traceparent", b"00-1-4-01")]

    assert with_trace(headers, "traceparent=00-1-3-01\ntracestate=x") == [
        ("traceparent", b"00-1-3-01"),
        ("a", b"1"),
        ("traceparent", b"00-1-3-01"),
        ("tracestate", b"x"),
    ]


def test_headers_of_a_record_that_are_passed_on_are_those_of_the_trace() -> None:
    """The function has not chosen them; others of the same names are its own."""
    came = (("traceparent", b"00-1-0-01"), ("baggage", b"a=b"), ("origin", b"web"))
    record = IngressRecord("in", 0, 1, datetime(2026, 1, 1, tzinfo=timezone.utc), came)
    functions = StatefulFunctions()

    @functions.bind("t/f")
    def forward(ctx: Context, message: Message) -> None:
        for headers in (came, {"traceparent": "00-1-7-01"}):
            ctx.send(KafkaEgressMessage("t/out", topic="x", value="v", headers=headers))

    batch = InvocationBatch(
        Address("t", "f", "Ada"),
        {},
        [Invocation(None, TypedValue("a/b", b""), TRACE)],
        record=lambda _: record,
    )
    result = invoke(functions.for_typename("t/f"), batch)

    forwarded, own = map(_headers, result.egress_messages)
    assert forwarded == (("origin", b"web"), *HEADERS)
    assert own == (("traceparent", b"00-1-7-01"), HEADERS[1])
