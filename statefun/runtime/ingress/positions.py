# SPDX-License-Identifier: Apache-2.0
"""Determines from Spark's progress reports how far each Kafka ingress has read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import attrs
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import within_stops
from statefun.runtime.ingress.stopping import Offsets


@attrs.frozen
class Position:
    """How far an ingress has read in a micro-batch; offsets are by topic and partition."""

    ingress: KafkaIngress
    start: Offsets
    """The offsets at which the micro-batch began to read."""
    read: Offsets
    """The offsets of the next records to read after the micro-batch."""
    lags: Offsets
    """How many records, by topic and partition, existed at the micro-batch's end and were not read."""


def positions(
    ingresses: Sequence[KafkaIngress],
    stops: Sequence[Offsets | None],
    progress: StreamingQueryProgress,
) -> Iterator[Position]:
    """Yield how far each Kafka ingress has read in a micro-batch.

    Args:
        ingresses: the ingresses in the order of the query's sources.
        stops: the offsets before which each ingress stops; None for an ingress that reads for ever.
        progress: Spark's progress report of one micro-batch.
    """
    for ingress, stop, source in zip(ingresses, stops, progress.sources, strict=False):
        start, read, latest = (
            kafka_offsets(text)
            for text in (source.startOffset, source.endOffset, source.latestOffset)
        )
        if stop is not None:
            start, read, latest = (within_stops(offsets, stop) for offsets in (start, read, latest))
        yield Position(ingress, start, read, _lags(read, latest))


def records_read(texts: Iterable[str | None]) -> int:
    """Return how many records connectors have read, as the key ``records`` of their offsets says.

    >>> records_read(['{"records": 3}', None, '{"log": 1}', '{"records": 4}'])
    7
    """
    offsets = (json.loads(text) if text else {} for text in texts)
    return sum(offset.get("records", 0) for offset in offsets if isinstance(offset, dict))


def total(offsets: Offsets) -> int:
    """Return the sum of numbers by topic and partition.

    >>> total({"users": {"0": 7, "1": 2}, "orders": {"0": 1}})
    10
    """
    return sum(sum(partitions.values()) for partitions in offsets.values())


def kafka_offsets(text: str | None) -> Offsets:
    """Decode the offset of a Kafka source from JSON; empty if the source has not had any data yet."""
    return json.loads(text) if text and text.startswith("{") else {}


def _lags(read: Offsets, latest: Offsets) -> Offsets:
    return {
        topic: {
            number: max(0, end - read.get(topic, {}).get(number, end))
            for number, end in partitions.items()
        }
        for topic, partitions in latest.items()
    }
