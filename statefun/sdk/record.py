# SPDX-License-Identifier: Apache-2.0
"""The ingress record that a message was, and the trace that it is part of."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import NamedTuple, TypeVar

from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.message import Message

M = TypeVar("M", Message, EgressMessage)

TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
"""What is carried from a record to all that it causes: W3C's Trace Context, and Baggage."""


class IngressRecord(NamedTuple):
    """Where a message from an ingress was read, and what came with it."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    """When it was written, or whatever time its producer gave it; in UTC."""
    headers: tuple[tuple[str, bytes | None], ...]
    """Names and values, in order; a name may occur more than once."""


class KafkaRecord(NamedTuple):
    """A whole record of an ingress, as a deserializer gets it."""

    key: bytes | None
    value: bytes | None
    """None in a tombstone."""
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    """When it was written, or whatever time its producer gave it; in UTC."""
    headers: tuple[tuple[str, bytes | None], ...]
    """Names and values, in order; a name may occur more than once."""


def traced(message: M, trace: str) -> M:
    r"""Return a copy of ``message`` that is part of a trace.

    Args:
        message: what is sent.
        trace: headers as ``name=value``, a line each.

    A record keeps the headers of these names that it has.

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
        own = {name for name, _ in copied.headers}
        lines = (line.partition("=") for line in trace.splitlines())
        copied.headers += tuple((name, text.encode()) for name, _, text in lines if name not in own)
    else:
        copied.trace = trace
    return copied
