# SPDX-License-Identifier: Apache-2.0
"""Passes the trace of a message on to all messages and records that its function sends."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.message import Message

M = TypeVar("M", Message, EgressMessage)

TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
"""The headers that pass from a record to all its effects: W3C's Trace Context, and Baggage."""


def traced(message: M, trace: str, source: Message | None = None) -> M:
    r"""Return a copy of ``message`` that is part of a trace.

    Args:
        message: the message to send.
        trace: headers as ``name=value``, one per line.
        source: the message that the function handles while it sends ``message``; None if there is none.

    A trace header that a record already has stays as it is, unless the function has only copied it from the
    ingress record of ``source``.

    >>> record = KafkaEgressMessage("com.example/greets", topic="greetings", value="Hello")
    >>> traced(record, "traceparent=00-1-2-01\nbaggage=a=b").headers
    (('traceparent', b'00-1-2-01'), ('baggage', b'a=b'))
    """
    if isinstance(message, EgressMessage) and not isinstance(message, KafkaEgressMessage):
        if message.typed_value.typename != KAFKA_RECORD_TYPENAME:
            return message
        message = KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
    copied = copy.copy(message)
    if isinstance(copied, KafkaEgressMessage):
        headers = _headers(trace)
        if copied.headers:
            own = {name for name, _ in copied.headers}
            if source is not None and not own.isdisjoint(TRACE_HEADERS):
                copied.headers = _without_forwarded(copied.headers, source)
                own = {name for name, _ in copied.headers}
            headers = tuple(header for header in headers if header[0] not in own)
        copied.headers += headers
    else:
        copied.trace = trace
    return copied


def _without_forwarded(
    headers: tuple[tuple[str, bytes | None], ...], source: Message
) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers without the trace headers that are the same in the ingress record of ``source``."""
    record = source.record
    came = () if record is None else record.headers
    return tuple(each for each in headers if each[0] not in TRACE_HEADERS or each not in came)


def _headers(trace: str) -> tuple[tuple[str, bytes | None], ...]:
    if "\n" not in trace:
        name, _, text = trace.partition("=")
        return ((name, text.encode()),)
    lines = (line.partition("=") for line in trace.split("\n"))
    return tuple((name, text.encode()) for name, _, text in lines)


def with_trace(
    headers: Sequence[tuple[str, bytes | None]], trace: str
) -> list[tuple[str, bytes | None]]:
    r"""Return the headers of a dead letter and those of a trace, which replace headers with the same names.

    >>> with_trace([("a", b"1"), ("traceparent", b"00-1-2-01")], "traceparent=00-1-3-01")
    [('a', b'1'), ('traceparent', b'00-1-3-01')]
    """
    traces = dict(_headers(trace))
    kept = [(name, traces.get(name, value)) for name, value in headers]
    present = {name for name, _ in headers}
    return [*kept, *((name, value) for name, value in traces.items() if name not in present)]
