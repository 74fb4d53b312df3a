# SPDX-License-Identifier: Apache-2.0
"""The thread that sends an application's metrics and traces to a collector of OpenTelemetry.

So a collector that is slow or dead holds nothing up but this thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.telemetry.collector import Collector, Signal
from statefun.runtime.telemetry.metric_points import MetricPoints
from statefun.runtime.telemetry.resource import application_resource, own_scope
from statefun.runtime.telemetry.staged_spans import UncommittedSpans
from statefun.runtime.telemetry.trace_spans import SpanConversion, Systems

logger = logging.getLogger("statefun")

METRICS_SECONDS = 10.0
"""The time between two exports of the metrics."""
SPANS_SECONDS = 1.0
"""The time between two exports of spans."""
_MOST_SPANS = 2000
"""How many spans a request has at most."""
_END_SECONDS = 3.0
"""How long the end of the application waits for the last export."""


class Exports(threading.Thread):
    """Sends the metrics and spans of an application now and then, and once more at its end.

    Args:
        endpoint: the URL of the collector.
        views: the facts about the application.
        name: the name of the application.

    Raises:
        ConfigurationError: if OpenTelemetry's environment variables cannot be used.
    """

    def __init__(self, endpoint: str, views: AdminViews, name: str) -> None:
        super().__init__(name="statefun-telemetry", daemon=True)
        self._collector = Collector(endpoint)
        resource, scope = application_resource(name), own_scope()
        self._points = MetricPoints(views, resource, scope, int(views.figures.began * 1e9))
        definition = views.definition
        self._conversion = SpanConversion(Systems.of(definition.module), resource, scope)
        self.spans = UncommittedSpans(CommitLog(definition.settings.checkpoint).newest)
        """Gets the staged micro-batches."""
        self._told_dropped = 0
        self._stopping = threading.Event()

    def run(self) -> None:
        """Send until :meth:`end` is called."""
        is_over, next_metrics = False, time.monotonic() + METRICS_SECONDS
        while not is_over:
            is_over = self._stopping.wait(min(METRICS_SECONDS, SPANS_SECONDS))
            if is_over or time.monotonic() >= next_metrics:
                next_metrics = time.monotonic() + METRICS_SECONDS
                _attempt(self._collector.metrics, self._send_metrics)
            _attempt(self._collector.spans, self._send_spans)

    def _send_metrics(self) -> None:
        self._collector.metrics.send(self._points.at(time.time_ns()))

    def _send_spans(self) -> None:
        """Send the spans of the micro-batches that were committed; drop all of them if the collector does not take them."""
        signal, committed = self._collector.spans, self.spans.take()
        if self.spans.dropped > self._told_dropped:
            self._told_dropped = self.spans.dropped
            signal.warn("the collector is too slow for them; a smaller trace-share makes fewer")
        spans = chain.from_iterable(map(self._conversion.spans, committed))
        begun = time.thread_time()
        while chunk := [*islice(spans, _MOST_SPANS)]:
            if not signal.send(chunk):
                return
            begun, spent = time.thread_time(), time.thread_time() - begun
            self._stopping.wait(spent)  # other threads of the driver need the interpreter, too

    def end(self) -> None:
        """Send a last time, and end the thread; this takes a few seconds at most."""
        self._stopping.set()
        self.join(_END_SECONDS)
        self._collector.close()


def _attempt(signal: Signal[Any], send: Callable[[], None]) -> None:
    """Send something; if that fails, for example because the checkpoint cannot be read, the application goes on."""
    try:
        send()
    except Exception as error:
        signal.warn(f"{type(error).__name__}: {error}")
        logger.debug("telemetry cannot be sent", exc_info=True)
