# SPDX-License-Identifier: Apache-2.0
"""The thread that sends an application's metrics to a collector of OpenTelemetry.

So a collector that is slow or dead holds nothing up but this thread.
"""

from __future__ import annotations

import logging
import threading
import time

from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.telemetry.collector import Collector
from statefun.runtime.telemetry.metric_points import MetricPoints
from statefun.runtime.telemetry.resource import application_resource, own_scope

logger = logging.getLogger("statefun")

METRICS_SECONDS = 10.0
"""The time between two exports of the metrics."""
_END_SECONDS = 3.0
"""How long the end of the application waits for the last export."""


class Exports(threading.Thread):
    """Sends the metrics of an application now and then, and once more at its end.

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
        begun = int(views.figures.began * 1e9)
        self._points = MetricPoints(views, application_resource(name), own_scope(), begun)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Send until :meth:`end` is called."""
        is_over = False
        while not is_over:
            is_over = self._stopping.wait(METRICS_SECONDS)
            try:
                self._collector.metrics.send(self._points.at(time.time_ns()))
            except Exception:
                logger.exception("metrics cannot be sent; the application goes on")

    def end(self) -> None:
        """Send a last time, and end the thread; this takes a few seconds at most."""
        self._stopping.set()
        self.join(_END_SECONDS)
        self._collector.close()
