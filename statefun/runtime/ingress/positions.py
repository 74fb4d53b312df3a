# SPDX-License-Identifier: Apache-2.0
"""How far the ingresses have read, by what Spark tells of a query's progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import attrs
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import within_stops
from statefun.runtime.ingress.stopping import Offsets


@attrs.frozen
class Position:
    """How far an ingress has read; offsets are by topic and partition."""

    ingress: KafkaIngress
    start: Offsets
    """From where the micro-batch read."""
    read: Offsets
    """The next ones to read."""
    lags: Offsets
    """How many records were there then and not read yet."""


def positions(
    ingresses: Sequence[KafkaIngress],
    stops: Sequence[Offsets | None],
    progress: StreamingQueryProgress,
) -> Iterator[Position]:
    """Yield the position of each ingress.

    Args:
        ingresses: in the order of the query's sources.
        stops: before which offsets each of them stops, if it does.
        progress: of one micro-batch.
    """
    for ingress, stop, source in zip(ingresses, stops, progress.sources, strict=False):
        start, read, there = (
            _offsets(text) for text in (source.startOffset, source.endOffset, source.latestOffset)
        )
        if stop is not None:
            start, read, there = (within_stops(offsets, stop) for offsets in (start, read, there))
        yield Position(ingress, start, read, _lags(read, there))


def total(offsets: Offsets) -> int:
    """Add up what there is of all partitions.

    >>> total({"users": {"0": 7, "1": 2}, "orders": {"0": 1}})
    10
    """
    return sum(sum(partitions.values()) for partitions in offsets.values())


def _offsets(text: str | None) -> Offsets:
    """Read a Kafka source's offset; a source that has not had any data has none."""
    return json.loads(text) if text and text.startswith("{") else {}


def _lags(read: Offsets, there: Offsets) -> Offsets:
    return {
        topic: {
            number: max(0, end - read.get(topic, {}).get(number, end))
            for number, end in partitions.items()
        }
        for topic, partitions in there.items()
    }
