# SPDX-License-Identifier: Apache-2.0
"""Finds out where Kafka's partitions end while Spark does not ask.

Spark asks when it plans a micro-batch. So its reports do not show the records that come during a long one, or while an
ingress or the application is paused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import attrs
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statefun.engine.clock import Clock
from statefun.engine.watermark import Partition
from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.partition_ends import PartitionEnds
from statefun.runtime.ingress.positions import kafka_offsets
from statefun.runtime.spark_internals.query_progress import set_latest_offset

_PATIENCE = timedelta(seconds=3)
"""How long the newest offsets in Spark's reports may stay the same until the clusters are asked."""


@attrs.define
class _Known:
    """The known ends of an ingress's partitions."""

    reported: str | None = None
    """The newest offsets in Spark's last report."""
    since: float = 0.0
    """Since when they are the same, in seconds of the monotonic clock."""
    later: dict[str, dict[str, int]] = attrs.field(factory=dict)
    """The ends that the cluster has returned since then, by topic and partition."""


class LaterEnds:
    """Asks the clusters, in a thread of its own, about ingresses whose newest offsets in Spark's reports stay the same.

    Args:
        ingresses: the ingresses in the order of the query's sources.
        clock: the clock of the application.
        patience: how long the offsets may stay the same until the cluster is asked.
    """

    def __init__(
        self,
        ingresses: Sequence[KafkaIngress],
        clock: Clock,
        patience: timedelta = _PATIENCE,
    ) -> None:
        self._ingresses = ingresses
        self._patience = patience.total_seconds()
        self._ends = PartitionEnds(ingresses, clock)
        self._known = {str(ingress.id): _Known() for ingress in ingresses}

    def add_to(self, progress: StreamingQueryProgress) -> None:
        """Replace the newest offsets in a progress report by later ones, as far as they are known; this never waits.

        If a cluster does not answer, the ends that it has returned last stay.
        """
        asked: list[Partition] = []
        for ingress, source in zip(self._ingresses, progress.sources, strict=False):
            name = str(ingress.id)
            known = self._known[name]
            if known.reported != source.latestOffset or not known.since:
                self._known[name] = _Known(source.latestOffset, time.monotonic())
            elif time.monotonic() - known.since >= self._patience:
                read = kafka_offsets(source.endOffset)
                asked += (
                    Partition(name, topic, int(each)) for topic in read for each in read[topic]
                )
        for (name, topic, number), end in self._ends.ends(asked).items():
            self._known[name].later.setdefault(topic, {})[str(number)] = end.offset
        for position, ingress in enumerate(self._ingresses[: len(progress.sources)]):
            known = self._known[str(ingress.id)]
            if known.later:
                newest = _later(kafka_offsets(known.reported), known.later)
                set_latest_offset(progress, position, json.dumps(newest))

    def close(self) -> None:
        """End the thread, without waiting for the answer of a cluster."""
        self._ends.stop()


def _later(
    one: Mapping[str, Mapping[str, int]], other: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the later end of each partition.

    >>> _later({"users": {"0": 7, "1": 2}}, {"users": {"1": 9, "2": 1}})
    {'users': {'0': 7, '1': 9, '2': 1}}
    """
    ends = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        of_topic = ends.setdefault(topic, {})
        for number, end in partitions.items():
            of_topic[number] = max(end, of_topic.get(number, end))
    return ends
