# SPDX-License-Identifier: Apache-2.0
"""Spark's progress reports of a query, which differ in Spark 4.0 and 4.1.

Based on ``pyspark/sql/streaming/listener.py`` (``SourceProgress.fromJson``) and ``KafkaMicroBatchStream.scala``
(``metrics``). PySpark prints the offsets of a source as Python prints a dict; a report is a dict with the same names as
its attributes. A Kafka source reports its lag. If an earlier run has planned the query's first micro-batch, the source
has never asked for the newest offsets, and ends the query with a NullPointerException.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from statefun.runtime.spark_internals.jvm import jvm
from statefun.runtime.spark_internals.versions import RELEASE

_OFFSETS = ("startOffset", "endOffset", "latestOffset")
_KAFKA = "KafkaMicroBatchStream"
_WHOLE = "triggerExecution"


@attrs.frozen
class BatchTimes:
    """How long a micro-batch and its phases took."""

    batch: int
    began: float
    """When it was planned, in seconds since the epoch."""
    seconds: float
    phases: Mapping[str, float]
    """The seconds of each phase, by Spark's name for it."""
    rows: int
    """The number of records and messages that it has read."""


def batch_times(progress: StreamingQueryProgress) -> BatchTimes | None:
    """Return how long the micro-batch of a report took; None if the report is about an idle moment."""
    phases = {name: millis / 1000 for name, millis in (progress.durationMs or {}).items()}
    if "addBatch" not in phases:
        return None
    began = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
    seconds = phases.pop(_WHOLE, sum(phases.values()))
    return BatchTimes(progress.batchId, began, seconds, phases, progress.numInputRows)


def newest_progress(query: StreamingQuery) -> StreamingQueryProgress | None:
    """Return the report of the query's last micro-batch; None before the first one."""
    progress = query.lastProgress
    return None if progress is None else _with_json(progress)


def recent_progress(query: StreamingQuery) -> list[StreamingQueryProgress]:
    """Return the reports of the query's last micro-batches, oldest first, as far as Spark keeps them."""
    return [_with_json(progress) for progress in query.recentProgress]


def set_latest_offset(progress: StreamingQueryProgress, source: int, offset: str) -> None:
    """Set the newest offset of a source in a report, given the number of the source."""
    cast("dict[str, Any]", progress.sources[source])["latestOffset"] = offset


def learn_newest_offsets(session: SparkSession) -> None:
    """Make the Kafka sources of a session's queries ask for the newest offsets, if Spark's progress reports lack them.

    Must be called while a query waits, such as in ``foreachBatch``.
    """
    if RELEASE >= (4, 2):
        return
    everything = jvm().org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
    for query in session.streams.active:
        sources = cast("Any", query)._jsq.streamingQuery().sources()  # noqa: SLF001 - it has no public name
        for number in range(sources.size()):
            source = sources.apply(number)
            if source.getClass().getSimpleName() == _KAFKA:
                source.latestOffset(source.initialOffset(), everything)


def _with_json(progress: StreamingQueryProgress) -> StreamingQueryProgress:
    if RELEASE < (4, 2):
        sources = json.loads(progress.json)["sources"]
        for source, content in zip(progress.sources, sources, strict=True):
            for name in _OFFSETS:
                offset = content[name]
                text = offset if isinstance(offset, str) else json.dumps(offset)
                cast("dict[str, Any]", source)[name] = text
    return progress
