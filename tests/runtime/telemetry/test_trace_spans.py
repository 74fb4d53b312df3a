# SPDX-License-Identifier: Apache-2.0
"""Spans of invocations and records, as a collector gets them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as Outcomes
from otlp_receiver import attributes

from statefun.engine.span_details import SpanDetails
from statefun.engine.trace_journal import FAILURE, INVOCATION, NOBODY, RECORD, TraceJournal
from statefun.module.loader import parse_module
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.rows.trace_entries import details_stream, trace_stream
from statefun.runtime.telemetry import staged_spans
from statefun.runtime.telemetry.resource import application_resource, own_scope
from statefun.runtime.telemetry.staged_spans import StagedSpans, UncommittedSpans
from statefun.runtime.telemetry.trace_spans import SpanConversion, Systems

TRACE, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "0" * 31 + "1"
FIRST, SECOND, THIRD = "00f067aa0ba902b7", "00f067aa0ba902b8", "00f067aa0ba902b9"
STAGED = 5_000
KEY = b"Ada\0t/f"
Entry = tuple[int, str, str, bytes, str, str, int, int]
"""Kind, span, parent, key, text, trace, start and end."""


def task(*entries: Entry) -> tuple[bytes, bytes]:
    """Return what a task reports of entries."""
    details = SpanDetails()
    journal = TraceJournal(details=details)
    for kind, span, parent, key, text, trace, start, end in entries:
        journal.kinds.append(kind)
        journal.spans.append(span)
        journal.parents.append(parent)
        journal.keys.append(key)
        journal.texts.append(text)
        details.traces.append(trace)
        details.starts.append(start)
        details.ends.append(end)
    return trace_stream(journal), details_stream(details)


def received(*tasks: tuple[bytes, bytes], systems: Systems | None = None) -> list[Span]:
    """Return the spans that a collector gets of the tasks of a micro-batch."""
    conversion = SpanConversion(
        systems or Systems({}, "kafka"), application_resource("greeter"), own_scope()
    )
    spans = [*conversion.spans(StagedSpans(7, STAGED, tasks))]
    if not spans:
        return []
    [resource] = encode_spans(spans).resource_spans
    assert attributes(resource.resource.attributes)["service.name"] == "greeter"
    [scope] = resource.scope_spans
    assert scope.scope.name == "statefun"
    return [*scope.spans]


def test_an_invocation_is_a_span_that_processes_a_record() -> None:
    """With the names of the conventions, and the span that has caused it."""
    (span,) = received(task((INVOCATION, FIRST, SECOND, KEY, "a/b/2/17", TRACE, 1_000, 2_000)))

    assert (span.trace_id.hex(), span.span_id.hex()) == (TRACE, FIRST)
    assert span.parent_span_id.hex() == SECOND
    assert (span.name, span.kind) == ("process t/f", Span.SPAN_KIND_CONSUMER)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000, 2_000)
    assert span.status.code == Outcomes.STATUS_CODE_UNSET
    assert attributes(span.attributes) == {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.system": "kafka",
        "messaging.destination.name": "a/b",
        "messaging.destination.partition.id": "2",
        "messaging.kafka.offset": 17,
        "statefun.function": "t/f",
        "statefun.id": "Ada",
        "statefun.batch": 7,
    }


def test_a_message_of_a_function_comes_from_the_application() -> None:
    """The destination is the function; the first span of a trace has no parent."""
    (span,) = received(task((INVOCATION, FIRST, NOBODY, KEY, "", TRACE, 1, 2)))

    found = attributes(span.attributes)
    assert (found["messaging.system"], found["messaging.destination.name"]) == ("statefun", "t/f")
    assert not span.parent_span_id


def test_a_record_is_a_span_that_sends_it() -> None:
    """At the end of the invocation that has sent it; its key is text."""
    first, sent, late = received(
        task(
            (INVOCATION, FIRST, NOBODY, KEY, "", TRACE, 1_000, 2_000),
            (RECORD, NOBODY, FIRST, b"Ad\xff", "greetings", TRACE, 0, 0),
            (RECORD, NOBODY, SECOND, b"", "greetings", OTHER, 0, 0),
        )
    )

    assert (sent.name, sent.kind) == ("send greetings", Span.SPAN_KIND_PRODUCER)
    assert (sent.trace_id, sent.parent_span_id) == (first.trace_id, first.span_id)
    assert sent.start_time_unix_nano == sent.end_time_unix_nano == 2_000
    assert attributes(sent.attributes) == {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.system": "kafka",
        "messaging.destination.name": "greetings",
        "messaging.kafka.message.key": "Ad\ufffd",
    }
    assert len({first.span_id, sent.span_id, late.span_id}) == 3
    assert late.trace_id.hex() == OTHER
    assert late.start_time_unix_nano == STAGED


def test_a_failure_is_the_status_of_its_invocation() -> None:
    """With the exception as its type; that of an invocation of an earlier micro-batch has no span."""
    (span,) = received(
        task(
            (INVOCATION, FIRST, NOBODY, KEY, "", TRACE, 1, 2),
            (FAILURE, NOBODY, FIRST, KEY, "ValueError: [SF301] not so good", TRACE, 0, 0),
            (FAILURE, NOBODY, SECOND, KEY, "ValueError: of before", TRACE, 0, 0),
        )
    )

    assert span.status.code == Outcomes.STATUS_CODE_ERROR
    assert span.status.message == "ValueError: [SF301] not so good"
    assert attributes(span.attributes)["error.type"] == "ValueError"


def test_messages_that_an_endpoint_gets_at_once_are_links() -> None:
    """One of them is the parent; those that nobody has caused are counted only."""
    (span,) = received(
        task(
            (INVOCATION, FIRST, SECOND, KEY, "", TRACE, 1_000, 2_000),
            (INVOCATION, FIRST, THIRD, KEY, "", OTHER, 0, 0),
            (INVOCATION, FIRST, NOBODY, KEY, "in/0/1", OTHER, 0, 0),
        )
    )

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SECOND)
    (link,) = span.links
    assert (link.trace_id.hex(), link.span_id.hex()) == (OTHER, THIRD)
    assert attributes(span.attributes)["messaging.batch.message_count"] == 3
    assert attributes(span.attributes)["messaging.system"] == "statefun"


@pytest.mark.parametrize(("start", "expected"), [(0, (STAGED, STAGED)), (1_000, (1_000, STAGED))])
def test_a_call_that_goes_on_ends_with_its_micro_batch(
    start: int, expected: tuple[int, int]
) -> None:
    """As far as the micro-batch knows, which may not have begun it."""
    (span,) = received(task((INVOCATION, FIRST, NOBODY, KEY, "", TRACE, start, 0)))

    assert (span.start_time_unix_nano, span.end_time_unix_nano) == expected
    assert attributes(span.attributes)["statefun.unfinished"] is True


def test_records_of_other_systems_are_not_kafkas() -> None:
    """An ingress of a connector has its own system; several egresses leave it open."""
    module = parse_module(
        """
kind: io.statefun.kinesis.v1/ingress
spec:
  id: test/in
  awsRegion: {type: specific, id: eu-west-1}
  startupPosition: {type: earliest}
  streams:
    - stream: users
      valueType: io.statefun.types/string
      targets: [test/greeter]
---
kind: io.statefun.kinesis.v1/egress
spec:
  id: test/out
  awsRegion: {type: specific, id: eu-west-1}
"""
    )

    process, send = received(
        task(
            (INVOCATION, FIRST, NOBODY, KEY, "users/shard-1/17", TRACE, 1, 2),
            (RECORD, NOBODY, FIRST, b"", "out", TRACE, 0, 0),
        ),
        systems=Systems.of(module),
    )

    found = attributes(process.attributes)
    assert found["messaging.system"] == "io.statefun.kinesis.v1/ingress"
    assert found["statefun.offset"] == 17
    assert "messaging.kafka.offset" not in found
    assert "messaging.system" not in attributes(send.attributes)


IDS = st.sampled_from([f"{number:016x}" for number in range(1, 9)])
ENTRIES = st.lists(
    st.tuples(st.sampled_from([INVOCATION, RECORD, FAILURE]), IDS, IDS | st.just(NOBODY)),
    max_size=30,
)


@given(st.lists(ENTRIES, max_size=3))
def test_each_invocation_and_record_has_one_span(
    tasks: Sequence[Sequence[tuple[int, str, str]]],
) -> None:
    """Whatever order the entries have; a failure has none."""
    reported = [
        task(
            *(
                (kind, span if kind == INVOCATION else NOBODY, parent, KEY, "t", TRACE, 1, 2)
                if kind != INVOCATION
                else (kind, span, parent, KEY, "", TRACE, 1, 2)
                for kind, span, parent in entries
            )
        )
        for entries in tasks
    ]

    spans = received(*reported)

    invocations = sum(
        len({each[1] for each in entries if each[0] == INVOCATION}) for entries in tasks
    )
    records = sum(each[0] == RECORD for entries in tasks for each in entries)
    assert sum(each.kind == Span.SPAN_KIND_CONSUMER for each in spans) == invocations
    assert sum(each.kind == Span.SPAN_KIND_PRODUCER for each in spans) == records
    assert len({each.span_id for each in spans if each.kind == Span.SPAN_KIND_PRODUCER}) == records


def outcome(text: bytes) -> Outcome:
    """Return what a task reports."""
    return Outcome(traces=text, span_details=text)


def test_only_committed_micro_batches_are_sent_and_each_once() -> None:
    """One that is computed again has the spans of its last computation."""
    newest = -1
    spans = UncommittedSpans(lambda: newest)
    spans.add(4, [outcome(b"lost")])
    spans.add(5, [outcome(b"later")])
    assert spans.take() == []
    spans.add(4, [outcome(b"counts"), Outcome()])
    newest = 4

    (staged,) = spans.take()

    assert (staged.batch, staged.tasks) == (4, [(b"counts", b"counts")])
    assert spans.take() == []
    spans.add(5, [Outcome()])  # without invocations, now
    newest = 5
    assert spans.take() == []


def test_the_oldest_micro_batches_are_dropped_if_there_are_too_many_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And counted."""
    monkeypatch.setattr(staged_spans, "MOST_STAGED_BYTES", 10)
    spans = UncommittedSpans(lambda: 9)
    for batch in range(3):
        spans.add(batch, [outcome(b"1234")])

    assert [each.batch for each in spans.take()] == [2]
    assert spans.dropped == 2
