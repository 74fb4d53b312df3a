# SPDX-License-Identifier: Apache-2.0
"""A receiver of OTLP over HTTP, which reads requests with OpenTelemetry's own protocol."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_KINDS: Mapping[str, Any] = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}


@attrs.define
class Receiver:
    """What a receiver has got, and how it answers."""

    url: str = ""
    status: int = 200
    """The status of the answers."""
    seen: int = 0
    """The number of requests, also of those that were refused."""
    metrics: list[ExportMetricsServiceRequest] = attrs.field(factory=list)
    traces: list[ExportTraceServiceRequest] = attrs.field(factory=list)
    headers: list[Mapping[str, str]] = attrs.field(factory=list)
    """The headers of each request, with names in lower case."""
    answering: threading.Event = attrs.field(factory=threading.Event)
    """No request is answered before it is set."""

    def newest(self) -> dict[str, Metric]:
        """Return the metrics of the newest request by their names."""
        [resource] = self.metrics[-1].resource_metrics
        [scope] = resource.scope_metrics
        return {each.name: each for each in scope.metrics}

    def spans(self) -> list[Span]:
        """Return all spans."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def attributes(values: Any) -> dict[str, Any]:
    """Return the attributes of a point, span or resource."""
    found: list[KeyValue] = list(values)
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in found}


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver during the block."""
    receiver = Receiver()
    receiver.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                content = gzip.decompress(content)
            receiver.seen += 1
            receiver.answering.wait()
            kind, answer = _KINDS[self.path]
            if receiver.status == 200:
                request = kind.FromString(content)
                found = receiver.metrics if self.path == "/v1/metrics" else receiver.traces
                receiver.headers.append({name.lower(): text for name, text in self.headers.items()})
                found.append(request)
            body = answer().SerializeToString()
            self.send_response(receiver.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
