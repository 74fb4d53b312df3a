# SPDX-License-Identifier: Apache-2.0
"""Gauges for Spark's metrics system, whose sinks export them: JMX, Prometheus, Graphite.

The source is called ``statefun``. Per ingress there are ``commitsSucceeded`` and
``commitsFailed``, per partition ``currentOffset``, ``committedOffset`` and ``lag``; see docs/operations.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import attrs
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.positions import positions
from statefun.runtime.ingress.stopping import Offsets
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.summary import Summary

SOURCE = "statefun"
_TURN = timedelta(milliseconds=200)
"""The time limit of an update for partitions: each new value takes a call of the JVM."""


class Metrics:
    """The metrics of one run.

    Args:
        ingresses: the ingresses in the order of the query's sources.
        stops: the offsets before which each ingress stops, if it does.
        group_offsets: the committed offsets of the ingresses.
        summary: the counts of the run.
    """

    def __init__(
        self,
        ingresses: Sequence[KafkaIngress],
        stops: Sequence[Offsets | None],
        group_offsets: GroupOffsets,
        summary: Summary,
    ) -> None:
        self._ingresses = ingresses
        self._stops = stops
        self._group_offsets = group_offsets
        self._summary = summary
        self._gauge: Any = None
        self._registry: Any = None
        self._gauges: dict[str, Any] = {}
        self._values: dict[str, int] = {}
        self._left: Iterator[tuple[str, int]] | None = None
        """Values of partitions that the last update had no time for."""

    def open(self, session: SparkSession) -> None:
        """Join the metrics system of ``session``."""
        jvm: Any = session._jvm  # noqa: SLF001 - classes of the JVM have no other door
        gateway = session.sparkContext._gateway  # noqa: SLF001 - as above
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # as pyspark has it
        self._gauge = jvm.com.codahale.metrics.DefaultSettableGauge
        system = jvm.org.apache.spark.SparkEnv.get().metricsSystem()
        sources = system.getSourcesByName(SOURCE)
        if sources.isEmpty():
            system.registerSource(_Source(jvm.com.codahale.metrics.MetricRegistry()))
            sources = system.getSourcesByName(SOURCE)
        self._registry = sources.head().metricRegistry()

    def update(self, progress: StreamingQueryProgress | None) -> None:
        """Set all gauges of the run and ingresses, and as many of partitions as there is time for.

        The next call goes on with the remaining partitions: the caller has other duties,
        and a hundred thousand partitions take half a minute.

        Args:
            progress: the query's newest progress, if there is one.
        """
        for name, value in attrs.asdict(self._summary).items():
            if isinstance(value, int):
                self._set(name, value)
        for ingress, commits in zip(self._ingresses, self._group_offsets.commits, strict=True):
            self._set(f"ingress.{ingress.id}.commitsSucceeded", commits.succeeded)
            self._set(f"ingress.{ingress.id}.commitsFailed", commits.failed)
        deadline = time.monotonic() + _TURN.total_seconds()
        self._left = self._left or self._of_partitions(progress)
        for name, value in self._left:
            self._set(name, value)
            if time.monotonic() >= deadline:
                return
        self._left = None

    def close(self) -> None:
        """Remove the metrics, so that a later run of this process begins anew."""
        with suppress(Py4JError, OSError):  # Spark may have stopped already
            for name in self._gauges:
                self._registry.remove(name)

    def _of_partitions(self, progress: StreamingQueryProgress | None) -> Iterator[tuple[str, int]]:
        for ingress, commits in zip(self._ingresses, self._group_offsets.commits, strict=True):
            yield from _named(ingress, "committedOffset", commits.offsets)
        if progress is None:
            return
        for position in positions(self._ingresses, self._stops, progress):
            yield from _named(position.ingress, "currentOffset", position.read)
            yield from _named(position.ingress, "lag", position.lags)

    def _set(self, name: str, value: int) -> None:
        if self._values.get(name) == value:
            return  # every call of the JVM takes its time
        if name not in self._gauges:
            self._gauges[name] = self._gauge()
            self._registry.remove(name)  # the gauges of an earlier run of this process
            self._registry.register(name, self._gauges[name])
        self._gauges[name].setValue(value)
        self._values[name] = value


def _named(ingress: KafkaIngress, name: str, values: Offsets) -> Iterator[tuple[str, int]]:
    """Yield values with the names of their gauges."""
    for topic, partitions in values.items():
        for number, value in partitions.items():
            yield f"ingress.{ingress.id}.topic.{topic}.partition.{number}.{name}", value


class _Source:
    """The metrics source that Spark calls once, through py4j."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def sourceName(self) -> str:  # noqa: N802 - Spark's
        return SOURCE

    def metricRegistry(self) -> Any:  # noqa: N802 - Spark's
        return self._registry

    class Java:
        implements = ("org.apache.spark.metrics.source.Source",)
