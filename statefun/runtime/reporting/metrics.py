# SPDX-License-Identifier: Apache-2.0
"""The counters and gauges of a run in Spark's metrics system, for JMX, Prometheus or Graphite.

The source is called ``statefun``. Each ingress of Kafka has ``commitsSucceeded`` and
``commitsFailed``, and each of its partitions ``currentOffset``, ``committedOffset`` and ``lag``. An ingress
of a connector has ``records`` and the figures that its connector reports. A metric that is no longer reported,
such as one of a partition that is gone, is removed. See docs/operations.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import attrs
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statefun.engine.watermark import Partition
from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.positions import positions, records_read
from statefun.runtime.ingress.stopping import Offsets
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JVM_GONE, JvmError
from statefun.runtime.spark_internals.metrics_system import MetricsSource
from statefun.sdk.times import to_epoch_millis

logger = logging.getLogger("statefun")

SOURCE = "statefun"
_PRESENT = {"backlog", "calls_under_way", "endpoints_down"}
"""The counts of a summary that may also fall, so that they are gauges; the other counts are counters."""
_TURN = timedelta(milliseconds=200)
"""How long one update may set values of partitions: each new value takes a call of the JVM."""


class Metrics:
    """Sets the metrics of one run.

    Args:
        ingresses: Kafka's ingresses in the order of the query's sources.
        connectors: the ingresses of connectors, whose sources come after Kafka's.
        stops: by ingress, the offsets before which it stops; None for an ingress that does not stop.
        group_offsets: the commits of the ingresses' offsets to consumer groups.
        summary: the counts of the run.
    """

    def __init__(
        self,
        ingresses: Sequence[KafkaIngress],
        connectors: Sequence[ConnectorIngress],
        stops: Sequence[Offsets | None],
        group_offsets: GroupOffsets,
        summary: Summary,
    ) -> None:
        self._ingresses = ingresses
        self._connectors = connectors
        self._stops = stops
        self._group_offsets = group_offsets
        self._summary = summary
        self._source: MetricsSource | None = None
        self._values: dict[str, tuple[int, int]] = {}
        """The values of metrics by name, each with the number of the last round in which it was reported."""
        self._round = 0
        self.event_times: Mapping[Partition, int] = {}
        """The event time of the newest record of each partition, in milliseconds since the epoch."""
        self._remaining: Iterator[tuple[str, int | None]] | None = None
        """The rest of a round, for which the last update had no time; None if the round is over.

        The names of metrics with their values; None instead of a value stands for a metric to remove."""

    def open(self) -> None:
        """Register the source of the metrics in the Spark context."""
        with self._given_up_on_failure():
            self._source = MetricsSource(SOURCE)

    def update(self, progress: StreamingQueryProgress | None) -> None:
        """Set the metrics of the run and its ingresses, and those of partitions while time allows.

        The next call continues with the remaining partitions: the calling thread has other work to do,
        and a hundred thousand partitions take half a minute.

        Args:
            progress: the query's newest progress report; None before the first one.
        """
        if self._source is not None:
            with self._given_up_on_failure():
                self._update(self._source, progress)

    def close(self) -> None:
        """Remove the metrics, so that a later run of this process starts without values."""
        if self._source is not None:
            with suppress(JvmError, OSError):  # Spark may have stopped already
                self._source.clear()

    @contextmanager
    def _given_up_on_failure(self) -> Iterator[None]:
        """If the block fails, log a warning and set no metrics any more, so that the application goes on."""
        try:
            yield
        except JVM_GONE:
            raise
        except Exception as error:
            logger.warning(
                "the application goes on without metrics, since they cannot be set: %s",
                first_words(error),
            )
            logger.debug("the metrics cannot be set", exc_info=True)
            self.close()
            self._source = None

    def _update(self, source: MetricsSource, progress: StreamingQueryProgress | None) -> None:
        if self._remaining is None:
            self._round += 1
        for name, value in attrs.asdict(self._summary).items():
            if isinstance(value, int):
                self._set(source, name, value, is_counter=name not in _PRESENT)
        for ingress, commits in zip(self._ingresses, self._group_offsets.commits, strict=True):
            self._set(
                source, f"ingress.{ingress.id}.commitsSucceeded", commits.succeeded, is_counter=True
            )
            self._set(
                source, f"ingress.{ingress.id}.commitsFailed", commits.failed, is_counter=True
            )
        if self._summary.watermark is not None:
            self._set(source, "watermark", to_epoch_millis(self._summary.watermark))
        for partition, event_time in self.event_times.items():
            name = f"ingress.{partition.ingress}.topic.{partition.topic}.partition.{partition.number}.eventTime"
            self._set(source, name, event_time)
        deadline = time.monotonic() + _TURN.total_seconds()
        self._remaining = self._remaining or self._rest(progress)
        for name, value in self._remaining:
            if value is None:
                source.remove(name)
                del self._values[name]
            else:
                self._set(source, name, value)
            if time.monotonic() >= deadline:
                return
        self._remaining = None

    def _rest(self, progress: StreamingQueryProgress | None) -> Iterator[tuple[str, int | None]]:
        """Yield the rest of a round, as :attr:`_remaining` says."""
        yield from self._of_partitions(progress)
        for name in [name for name, (_, seen) in self._values.items() if seen < self._round]:
            yield name, None

    def _of_partitions(self, progress: StreamingQueryProgress | None) -> Iterator[tuple[str, int]]:
        """Yield the names and values of the metrics of partitions and of connectors."""
        for ingress, commits in zip(self._ingresses, self._group_offsets.commits, strict=True):
            yield from _gauges(ingress, "committedOffset", commits.offsets)
        if progress is None:
            return
        for position in positions(self._ingresses, self._stops, progress):
            yield from _gauges(position.ingress, "currentOffset", position.read)
            yield from _gauges(position.ingress, "lag", position.lags)
        others = progress.sources[len(self._ingresses) :]
        for connector, source in zip(self._connectors, others, strict=False):
            if read := records_read([source.endOffset]):
                yield f"ingress.{connector.id}.records", read
            for name, value in (source.metrics or {}).items():
                with suppress(ValueError, OverflowError):  # sources of Spark report any text
                    yield f"ingress.{connector.id}.{name}", int(float(value))

    def _set(
        self, source: MetricsSource, name: str, value: int, *, is_counter: bool = False
    ) -> None:
        known, _ = self._values.get(name, (None, 0))
        if known != value:  # every call of the JVM takes its time
            (source.count if is_counter else source.set)(name, value)
        self._values[name] = value, self._round


def _gauges(ingress: KafkaIngress, name: str, values: Offsets) -> Iterator[tuple[str, int]]:
    """Yield a gauge's name and value for each partition of an ingress."""
    for topic, partitions in values.items():
        for number, value in partitions.items():
            yield f"ingress.{ingress.id}.topic.{topic}.partition.{number}.{name}", value
