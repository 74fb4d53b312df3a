# SPDX-License-Identifier: Apache-2.0
"""Converts the table of metrics to OpenTelemetry's data model.

Prometheus and OpenTelemetry get their figures from the same table, so that they agree. All counts are cumulative; if a
count is lower than before, because a new run has begun, a new series of figures begins at zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as ExportedMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from statefun.engine.tallies import BOUNDS
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.admin.metric_table import ALL_METRICS, Metric, Sample
from statefun.runtime.reporting.figures import Durations

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_UNKNOWN = cast("float", None)
"""Shortest and longest durations are not measured; OTLP leaves them out."""


class MetricPoints:
    """Converts the metrics of one application, again and again.

    Args:
        views: the facts about the application.
        resource: what the metrics are about.
        scope: what has measured them.
        begun: when the counts began, in nanoseconds since the epoch.
        metrics: the metrics.
    """

    def __init__(
        self,
        views: AdminViews,
        resource: Resource,
        scope: InstrumentationScope,
        begun: int,
        metrics: Sequence[Metric] = ALL_METRICS,
    ) -> None:
        self._views = views
        self._resource = resource
        self._scope = scope
        self._metrics = metrics
        self._counts: dict[tuple[str, tuple[str, ...]], tuple[float, int]] = {}
        """The value of each count at the last conversion, and when the count has begun; by its metric and attributes."""
        self._present: dict[tuple[str, tuple[str, ...]], tuple[float, int]] = {}
        """The same for the conversion that is made: counts that are gone, as those of deleted topics, are forgotten."""
        self._before = begun
        """The time of the last conversion."""

    def at(self, now: int) -> MetricsData:
        """Return the present values; ``now`` is in nanoseconds since the epoch."""
        metrics = []
        self._present = {}
        for metric in self._metrics:
            if samples := list(metric.samples(self._views)):
                data = self._data(metric, samples, now)
                metrics.append(ExportedMetric(metric.convention, metric.meaning, metric.unit, data))
        self._counts, self._before = self._present, now
        scoped = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scoped], "")])

    def _data(self, metric: Metric, samples: Iterable[Sample], now: int) -> Sum | Gauge | Histogram:
        if metric.kind == "histogram":
            points = [
                self._histogram(metric, values, cast("Durations", value), now)
                for values, value in samples
            ]
            return Histogram(points, _CUMULATIVE)
        is_count = metric.kind == "counter"
        numbers = []
        for values, found in samples:
            value = cast("float", found)
            start = self._start(metric, values, value) if is_count else None
            numbers.append(
                NumberDataPoint(_attributes(metric, values), start, now, value)  # type: ignore[arg-type] # a gauge has none
            )
        return Sum(numbers, _CUMULATIVE, is_monotonic=True) if is_count else Gauge(numbers)

    def _histogram(
        self, metric: Metric, values: tuple[str, ...], durations: Durations, now: int
    ) -> HistogramDataPoint:
        count = sum(durations.counts)
        return HistogramDataPoint(
            _attributes(metric, values),
            self._start(metric, values, count),
            now,
            count,
            durations.seconds,
            durations.counts,
            BOUNDS,
            _UNKNOWN,
            _UNKNOWN,
        )

    def _start(self, metric: Metric, values: tuple[str, ...], value: float) -> int:
        """Return when a count has begun; if it is new or has become smaller, it has begun at the last conversion."""
        key = metric.convention, values
        last, start = self._counts.get(key, (value, self._before))
        if value < last:
            start = self._before
        self._present[key] = value, start
        return start


def _attributes(metric: Metric, values: tuple[str, ...]) -> dict[str, str]:
    """Return the attributes of a value by name, without the empty ones."""
    return {name: value for name, value in zip(metric.attributes, values, strict=True) if value}
