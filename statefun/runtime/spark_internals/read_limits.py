# SPDX-License-Identifier: Apache-2.0
"""Changes how many records a running query reads from each source, and returns the newest offsets that the query has found.

Based on ``StreamExecution.scala`` (``uniqueSources``), ``MicroBatchExecution.scala`` (``constructNextBatch``) and
``KafkaMicroBatchStream.scala`` (``rateLimit``, ``reportLatestOffset``) of Spark 4.0.2, 4.1.2 and 4.2.0: the query asks each source for its newest offset with
the limit that ``uniqueSources`` has when a micro-batch is planned. With a limit of 0 rows, the Kafka source returns the offset that
it was given, with new partitions at their first record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from statefun.runtime.spark_internals.jvm import jvm


def limit_sources(query: StreamingQuery, limits: Sequence[int]) -> bool:
    """Set how many records each of the first sources of a query reads in a micro-batch, from the next one on.

    Only one thread may call this at a time.

    Args:
        query: the running query.
        limits: the numbers, in the order of the sources; 0 reads nothing.

    Returns:
        Whether the limits are set; False if the query has not opened its sources yet.
    """
    execution = cast("Any", query)._jsq.streamingQuery()  # noqa: SLF001 - it has no public name
    sources, limited = execution.sources(), execution.uniqueSources()
    if sources.size() < len(limits) or limited.size() < len(limits):
        return False
    read_limit = jvm().org.apache.spark.sql.connector.read.streaming.ReadLimit
    for number, limit in enumerate(limits):
        limited = limited.updated(sources.apply(number), read_limit.maxRows(limit))
    getattr(execution, "uniqueSources_$eq")(limited)
    return True


def newest_offsets(
    query: StreamingQuery, count: int
) -> list[Mapping[str, Mapping[str, int]] | None]:
    """Return the newest offsets that the first sources of a query have found; all of them must be Kafka sources.

    Call this while the query plans a micro-batch. In a bounded run, these are the offsets at which it ends.

    Args:
        query: the running query.
        count: the number of sources.

    Returns:
        For each source, the offsets by topic and partition; None if it has not looked for them yet.
    """
    sources = cast("Any", query)._jsq.streamingQuery().sources()  # noqa: SLF001 - it has no public name
    if sources.size() < count:
        return [None] * count
    newest = [sources.apply(number).reportLatestOffset() for number in range(count)]
    return [
        None if offset is None or offset.partitionToOffsets() is None else json.loads(offset.json())
        for offset in newest
    ]
