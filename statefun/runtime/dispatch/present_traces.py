# SPDX-License-Identifier: Apache-2.0
"""Makes a message's trace the current trace of OpenTelemetry while a function handles the message.

Libraries that functions use, such as instrumented HTTP clients, then continue the trace. A worker without
OpenTelemetry's API has no such libraries. Most functions use none: so the headers are parsed only when a library asks
for the trace.
"""

from __future__ import annotations

from functools import cache

from statefun.engine.span_details import Attach, Detach


@cache
def attaching() -> tuple[Attach | None, Detach | None]:
    """Return a function that makes a trace the current one, and one that undoes it; None without OpenTelemetry."""
    try:
        from opentelemetry import context, trace  # noqa: PLC0415 - workers may not have it
        from opentelemetry.baggage.propagation import W3CBaggagePropagator  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )
    except ImportError:
        return None, None
    trace_context, baggage = TraceContextTextMapPropagator(), W3CBaggagePropagator()

    class Invocation(trace.NonRecordingSpan):
        """Stands for the span of an invocation; the driver makes the span itself later."""

        def __init__(self, headers: str) -> None:
            super().__init__(trace.INVALID_SPAN_CONTEXT)
            self._headers = headers

        def get_span_context(self) -> trace.SpanContext:
            if self._context is trace.INVALID_SPAN_CONTEXT:
                found = trace_context.extract(_named(self._headers), context.Context())
                self._context = trace.get_current_span(found).get_span_context()
            return self._context

    def attach(headers: str) -> object:
        present = trace.set_span_in_context(Invocation(headers))
        if "\nbaggage=" in headers or headers.startswith("baggage="):
            present = baggage.extract(_named(headers), present)
        return context.attach(present)

    return attach, context.detach


def _named(headers: str) -> dict[str, str]:
    lines = (line.partition("=") for line in headers.split("\n"))
    return {name: text for name, _, text in lines}
