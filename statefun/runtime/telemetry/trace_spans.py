# SPDX-License-Identifier: Apache-2.0
"""Converts the trace journal of a committed micro-batch to OpenTelemetry's spans.

Names and attributes follow OpenTelemetry's conventions for messaging: an invocation becomes a span of the operation
``process``, and an egress record a span of the operation ``send``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import attrs
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from statefun.engine.address_keys import address_of
from statefun.engine.trace_journal import FAILURE, INVOCATION, NOBODY
from statefun.module.model import Module
from statefun.runtime.rows.trace_entries import (
    EntryDetails,
    TraceEntry,
    details_of,
    entries_of,
    trace_table,
)
from statefun.runtime.telemetry.staged_spans import StagedSpans

_NOBODY = bytes.fromhex(NOBODY)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
Attributes = dict[str, str | int | bool]


@attrs.frozen
class Systems:
    """The messaging systems from which records come, and to which they go."""

    connectors: dict[str, str]
    """The kinds of ingresses that are not Kafka's, by their topics."""
    egress: str
    """The system of all egresses; empty if they have several."""

    @classmethod
    def of(cls, module: Module) -> Systems:
        """Return the systems of an application."""
        connectors = {
            route.topic: ingress.kind
            for ingress in module.connector_ingresses
            for route in ingress.topics
        }
        return cls(connectors, "" if module.connector_egresses else "kafka")

    def origin(self, text: str) -> Attributes:
        """Return the attributes of an ingress record at ``topic/partition/offset``."""
        topic, partition, offset = text.rsplit("/", 2)
        system = self.connectors.get(topic, "kafka")
        return {
            "messaging.system": system,
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": partition,
            "messaging.kafka.offset" if system == "kafka" else "statefun.offset": int(offset),
        }


@attrs.define
class _Invocation:
    """The journal's entries for one span: several if an endpoint has got several messages in one request."""

    entries: list[tuple[TraceEntry, EntryDetails]] = attrs.field(factory=list)
    failures: list[str] = attrs.field(factory=list)

    @property
    def start(self) -> int:
        return max(details.start for _, details in self.entries)

    @property
    def end(self) -> int:
        return max(details.end for _, details in self.entries)


class SpanConversion:
    """Converts the journals of one application.

    Args:
        systems: where its records come from, and where they go.
        resource: what the spans are about.
        scope: what has recorded the spans.
    """

    def __init__(self, systems: Systems, resource: Resource, scope: InstrumentationScope) -> None:
        self._systems = systems
        self._resource = resource
        self._scope = scope

    def spans(self, staged: StagedSpans) -> Iterator[ReadableSpan]:
        """Yield the spans of a micro-batch."""
        for entries, details in staged.tasks:
            rows = zip(entries_of(trace_table([entries])), details_of(details), strict=True)
            yield from self._of_task(staged, rows)

    def _of_task(
        self, staged: StagedSpans, rows: Iterable[tuple[TraceEntry, EntryDetails]]
    ) -> Iterator[ReadableSpan]:
        invocations: dict[bytes, _Invocation] = {}
        records = []
        for entry, details in rows:
            if entry.kind == INVOCATION:
                invocations.setdefault(entry.span, _Invocation()).entries.append((entry, details))
            elif entry.kind != FAILURE:
                records.append((entry, details))
            elif entry.parent in invocations:  # else of a call that has left an earlier micro-batch
                invocations[entry.parent].failures.append(entry.text)
        for invocation in invocations.values():
            yield self._invocation(staged, invocation)
        for entry, details in records:
            sender = invocations.get(entry.parent)
            yield self._record(entry, details, (sender and sender.end) or staged.time)

    def _invocation(self, staged: StagedSpans, invocation: _Invocation) -> ReadableSpan:
        (first, details), *others = invocation.entries
        address = address_of(first.key)
        attributes: Attributes = {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "statefun.function": address.typename,
            "statefun.id": address.id,
            "statefun.batch": staged.batch,
        }
        if first.text and not others:
            attributes |= self._systems.origin(first.text)
        else:
            attributes["messaging.system"] = "statefun"
            attributes["messaging.destination.name"] = address.typename
        if others:
            attributes["messaging.batch.message_count"] = len(invocation.entries)
        status = Status()
        if invocation.failures:
            text = invocation.failures[0]
            attributes["error.type"] = text.partition(":")[0]
            status = Status(StatusCode.ERROR, text)
        start, end = invocation.start or staged.time, invocation.end
        if not end:  # it has left its micro-batch, or has not begun in it
            attributes["statefun.unfinished"] = True
            end = max(start, staged.time)
        return ReadableSpan(
            f"process {address.typename}",
            _context(details.trace, first.span),
            _cause(first, details),
            self._resource,
            attributes,
            links=[
                Link(cause) for entry, own in others if (cause := _cause(entry, own)) is not None
            ],
            kind=SpanKind.CONSUMER,
            status=status,
            start_time=start,
            end_time=end,
            instrumentation_scope=self._scope,
        )

    def _record(self, entry: TraceEntry, details: EntryDetails, time: int) -> ReadableSpan:
        attributes: Attributes = {
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": entry.text,
        }
        if self._systems.egress:
            attributes["messaging.system"] = self._systems.egress
        if entry.key:
            attributes["messaging.kafka.message.key"] = entry.key.decode(errors="replace")
        return ReadableSpan(
            f"send {entry.text}",
            _context(details.trace, os.urandom(8)),
            _cause(entry, details),
            self._resource,
            attributes,
            kind=SpanKind.PRODUCER,
            start_time=time,
            end_time=time,
            instrumentation_scope=self._scope,
        )


def _cause(entry: TraceEntry, details: EntryDetails) -> SpanContext | None:
    """Return the span that has caused an entry; None if the entry has begun its trace."""
    if entry.parent == _NOBODY:
        return None
    return _context(details.trace, entry.parent, is_remote=True)


def _context(trace: bytes, span: bytes, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace, "big"), int.from_bytes(span, "big"), is_remote, _SAMPLED
    )
