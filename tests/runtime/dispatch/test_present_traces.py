# SPDX-License-Identifier: Apache-2.0
"""The trace of a message is OpenTelemetry's while a function handles the message."""

from __future__ import annotations

import asyncio
import sys

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from statefun.runtime.dispatch.present_traces import attaching

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
HEADER = f"traceparent=00-{TRACE}-{PARENT}-01"


def test_spans_of_libraries_continue_the_trace() -> None:
    """They are children of the invocation, also in tasks, and none of them is one afterwards."""
    attach, detach = attaching()
    assert attach is not None
    assert detach is not None
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("a client")

    async def ask(name: str) -> None:
        with tracer.start_as_current_span(name):
            await asyncio.sleep(0)

    async def run() -> None:
        token = attach(HEADER)
        await asyncio.create_task(ask("within"))
        detach(token)
        await ask("after")

    asyncio.run(run())

    within, after = exporter.get_finished_spans()
    assert within.context is not None
    assert within.parent is not None
    assert f"{within.context.trace_id:032x}" == TRACE
    assert f"{within.parent.span_id:016x}" == PARENT
    assert after.parent is None


def test_all_headers_of_a_trace_count() -> None:
    """Its state, and baggage; what is no header is left out."""
    attach, detach = attaching()
    assert attach is not None
    assert detach is not None
    token = attach(f"{HEADER}\ntracestate=a=b\nbaggage=user=ada\nnothing")
    try:
        present = trace.get_current_span().get_span_context()
        assert present.trace_state.get("a") == "b"
        assert baggage.get_baggage("user") == "ada"
    finally:
        detach(token)
    assert context.get_current() == {}


def test_a_value_has_no_other_header_in_it() -> None:
    """Only a line feed ends a header; values may have other ends of lines."""
    attach, detach = attaching()
    assert attach is not None
    assert detach is not None
    token = attach(f"{HEADER}\nbaggage=user=ada\x0ctraceparent=00-{'1' * 32}-{PARENT}-01")
    assert f"{trace.get_current_span().get_span_context().trace_id:032x}" == TRACE
    detach(token)


def test_a_trace_that_is_not_sampled_stays_so() -> None:
    """So clients do not begin another one."""
    attach, detach = attaching()
    assert attach is not None
    assert detach is not None
    token = attach(f"traceparent=00-{TRACE}-{PARENT}-00")
    assert not trace.get_current_span().get_span_context().trace_flags.sampled
    detach(token)


def test_workers_need_no_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of invocations are noted all the same."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    assert attaching.__wrapped__() == (None, None)
