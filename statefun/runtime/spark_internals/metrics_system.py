# SPDX-License-Identifier: Apache-2.0
"""Adds metrics to Spark's metrics system, whose sinks export them to JMX, Prometheus or Graphite.

Based on ``MetricsSystem.scala`` of Spark 4.2.0: a source is an object of any class that has a name and a
registry of the library Dropwizard Metrics.
"""

from __future__ import annotations

from typing import Any

from statefun.runtime.spark_internals.jvm import accept_calls, jvm


class MetricsSource:
    """Sets the metrics of one source in this process's Spark context.

    Args:
        name: the name of the source; if the context has no such source, it is registered.
    """

    def __init__(self, name: str) -> None:
        accept_calls()
        packages = jvm()
        self._new_gauge = packages.com.codahale.metrics.DefaultSettableGauge
        self._new_counter = packages.com.codahale.metrics.Counter
        system = packages.org.apache.spark.SparkEnv.get().metricsSystem()
        sources = system.getSourcesByName(name)
        if sources.isEmpty():
            system.registerSource(_Source(name, packages.com.codahale.metrics.MetricRegistry()))
            sources = system.getSourcesByName(name)
        self._registry = sources.head().metricRegistry()
        self._metrics: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def set(self, name: str, value: int) -> None:
        """Set a gauge to ``value``; the first call for a name replaces an earlier metric of this name."""
        if name not in self._metrics:
            self._register(name, self._new_gauge())
        self._metrics[name].setValue(value)

    def count(self, name: str, value: int) -> None:
        """Raise a counter to ``value``; the first call for a name creates the counter."""
        if name not in self._metrics:
            self._register(name, self._new_counter())
        self._metrics[name].inc(value - self._counts.get(name, 0))
        self._counts[name] = value

    def remove(self, name: str) -> None:
        """Remove a metric that this object has set."""
        del self._metrics[name]
        self._counts.pop(name, None)
        self._registry.remove(name)

    def clear(self) -> None:
        """Remove all metrics that this object has set."""
        for name in self._metrics:
            self._registry.remove(name)

    def _register(self, name: str, metric: Any) -> None:
        self._metrics[name] = metric
        self._registry.remove(name)
        self._registry.register(name, metric)


class _Source:
    """The object that Spark asks once, through py4j, for the source's name and registry."""

    def __init__(self, name: str, registry: Any) -> None:
        self._name = name
        self._registry = registry

    def sourceName(self) -> str:  # noqa: N802 - Spark's
        return self._name

    def metricRegistry(self) -> Any:  # noqa: N802 - Spark's
        return self._registry

    class Java:
        implements = ("org.apache.spark.metrics.source.Source",)
