# SPDX-License-Identifier: Apache-2.0
"""The positions of ingresses, from Spark's progress reports of a query."""

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
    """The position of an ingress; offsets are by topic and partition."""

    ingress: KafkaIngress
    start: Offsets
    """The offsets at which the micro-batch began."""
    read: Offsets
    """The next offsets to read."""
    lags: Offsets
    """The number of records that existed at the end of the micro-batch and were not read yet."""


def positions(
    ingresses: Sequence[KafkaIngress],
    stops: Sequence[Offsets | None],
    progress: StreamingQueryProgress,
) -> Iterator[Position]:
    """Yield the position of each ingress.

    Args:
        ingresses: the ingresses in the order of the query's sources.
        stops: the offsets before which each ingress stops, if it does.
        progress: Spark's progress of one micro-batch.
    """
    for ingress, stop, source in zip(ingresses, stops, progress.sources, strict=False):
        start, read, latest = (
            _offsets(text) for text in (source.startOffset, source.endOffset, source.latestOffset)
        )
        if stop is not None:
            start, read, latest = (within_stops(offsets, stop) for offsets in (start, read, latest))
        yield Position(ingress, start, read, _lags(read, latest))


def records_read(texts: Iterable[str | None]) -> int:
    """Return how many records connectors have read, by the key ``records`` of their offsets.

    >>> records_read(['{"records": 3}', None, '{"log": 1}', '{"records": 4}'])
    7
    """
    offsets = (json.loads(text) if text else {} for text in texts)
    return sum(offset.get("records", 0) for offset in offsets if isinstance(offset, dict))


def total(offsets: Offsets) -> int:
    """Return the sum over all partitions.

    >>> total({"users": {"0": 7, "1": 2}, "orders": {"0": 1}})
    10
    """
    return sum(sum(partitions.values()) for partitions in offsets.values())


def _offsets(text: str | None) -> Offsets:
    """Return the offsets in the JSON of a Kafka source; empty if the source has not had any data."""
    return json.loads(text) if text and text.startswith("{") else {}


def _lags(read: Offsets, latest: Offsets) -> Offsets:
    return {
        topic: {
            number: max(0, end - read.get(topic, {}).get(number, end))
            for number, end in partitions.items()
        }
        for topic, partitions in latest.items()
    }
