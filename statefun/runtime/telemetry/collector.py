# SPDX-License-Identifier: Apache-2.0
"""Sends to a collector of OpenTelemetry over OTLP, and drops what the collector does not take.

Headers, certificates, compression and timeouts come from OpenTelemetry's own environment variables
(``OTEL_EXPORTER_OTLP_*``), so that no secret is in a setting, nor in a log.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, TypeVar

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.util.re import parse_env_headers

from statefun.sdk.errors import ConfigurationError
from statefun.sdk.printable import printable

logger = logging.getLogger("statefun")

_BETWEEN_WARNINGS = timedelta(minutes=10)
"""The time between two warnings about one kind of telemetry."""
_MOST_CHARACTERS = 300
"""The largest length of a reason in a warning."""
_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.util.re",
)
"""The loggers that log while something is sent; the last one repeats headers that it cannot parse."""
_HEADERS = tuple(f"OTEL_EXPORTER_OTLP_{kind}HEADERS" for kind in ("", "METRICS_", "TRACES_"))
"""The environment variables with the headers of requests."""
_T = TypeVar("_T")


class _Ears(logging.Filter):
    """Collects the texts that OpenTelemetry logs while this application sends, and keeps them out of the log."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[int, list[str]] = {}
        """The logged texts, by the number of the thread."""

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Collect the texts that the present thread logs during the block; yield the list that gets them."""
        thread = threading.get_ident()
        heard = self._heard[thread] = []
        try:
            yield heard
        finally:
            del self._heard[thread]

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be logged."""
        heard = self._heard.get(threading.get_ident())
        if heard is None:
            return True
        heard.append(record.getMessage())
        return False


_EARS = _Ears()


class Collector:
    """A collector of OpenTelemetry.

    Args:
        endpoint: its URL, without the paths of OTLP.
        between_warnings: the time between two warnings about one kind of telemetry.

    Raises:
        ConfigurationError: if OpenTelemetry's environment variables cannot be used.
    """

    def __init__(self, endpoint: str, between_warnings: timedelta = _BETWEEN_WARNINGS) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_EARS)
        try:
            with _EARS.listening() as heard:
                _check_headers()
                metrics = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics")
                spans = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
        except Exception as error:
            raise ConfigurationError(
                f"the environment variables OTEL_* cannot be used: {printable(str(error), _MOST_CHARACTERS)}"
            ) from error
        if heard:
            logger.warning(
                "OTEL_EXPORTER_OTLP_HEADERS has an entry that is not of the form name=value, and is not sent"
            )
        self.metrics: Signal[MetricsData] = Signal(
            f"metrics to {endpoint}", metrics.export, between_warnings
        )
        """Sends the values of all metrics at a time."""
        self.spans: Signal[Sequence[ReadableSpan]] = Signal(
            f"traces to {endpoint}", spans.export, between_warnings
        )
        """Sends spans."""
        self._exporters = (metrics, spans)

    def close(self) -> None:
        """Stop trying to send; nothing can be sent afterwards."""
        with _EARS.listening():
            for exporter in self._exporters:
                exporter.shutdown()


def _check_headers() -> None:
    """Refuse headers with line ends before they are sent: the client's error would repeat the whole header."""
    for variable in _HEADERS:
        for name, value in parse_env_headers(os.environ.get(variable, ""), liberal=True).items():
            if "\n" in value or "\r" in value:
                raise ValueError(
                    f"header {name!r} of {variable} has a line end (%0A); write its value in one line"
                )


class Signal(Generic[_T]):
    """Sends one kind of telemetry; a single thread uses this.

    Args:
        what: the kind of telemetry and its destination, for warnings.
        export: sends the content; the ``name`` of its result is ``SUCCESS`` if the collector has taken the content.
        between_warnings: the time between two warnings.
    """

    def __init__(self, what: str, export: Callable[[_T], Any], between_warnings: timedelta) -> None:
        self._what = what
        self._export = export
        self._between_warnings = between_warnings.total_seconds()
        self._next_warning = 0.0
        self._is_warned = False
        """Whether the collector has taken nothing since the last warning."""

    def send(self, content: _T) -> bool:
        """Send something, and wait for the answer; if there is none in time, warn and drop it.

        Returns:
            Whether the collector has taken it.
        """
        with _EARS.listening() as heard:
            try:
                is_taken = bool(self._export(content).name == "SUCCESS")
            except Exception as error:  # noqa: BLE001 - whatever it is, the application goes on
                is_taken = False
                heard.insert(0, f"{type(error).__name__}: {error}")
        if not is_taken:
            self.warn(heard[0] if heard else "no answer")
        elif self._is_warned:
            self._is_warned = False
            logger.info("%s can be sent again", self._what)
        return is_taken

    def warn(self, reason: str) -> None:
        """Warn that something was dropped, unless there was a warning not long ago."""
        now = time.monotonic()
        if now < self._next_warning:
            return
        self._next_warning = now + self._between_warnings
        self._is_warned = True
        logger.warning(
            "%s cannot be sent, and are dropped while the application goes on: %s",
            self._what,
            printable(reason, _MOST_CHARACTERS),
        )
