# SPDX-License-Identifier: Apache-2.0
"""Micro-batches on disk, and runs through them, for benchmarks of the operator."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from statefun import StatefulFunctions
from statefun.engine.clock import SystemClock
from statefun.engine.program import Program
from statefun.engine.sinks import Sink
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.dispatch.announcement import Announcement, announce
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.plan import dispatch
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.rows.envelope import ROW_SCHEMA

_numbers = itertools.count()


@attrs.frozen
class Run:
    """The times of one run through some micro-batches."""

    collect_seconds: Sequence[float]
    """The seconds of each micro-batch's action: everything between planning and commit."""
    batch_seconds: Sequence[float]
    """Per micro-batch, all that Spark reports of its trigger."""


def write_batches(folder: Path, typename: str, batches: Sequence[Iterable[int]]) -> None:
    """Write micro-batches: per message, the number that is the id of its address."""
    folder.mkdir(parents=True)
    offset = 0
    for number, batch in enumerate(batches):
        ids = list(batch)
        rows = len(ids)
        table = pa.table(
            {
                "target": pa.array([b"%d\0%b" % (id_, typename.encode()) for id_ in ids]),
                "offset": pa.array(np.arange(rows) + offset),
                "caller": pa.nulls(rows, pa.binary()),
                "typename": pa.repeat("bench/bytes", rows),
                "value": pa.repeat(b"x" * 100, rows),
                "topic": pa.repeat("in", rows),
                "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
                "route": pa.repeat(pa.scalar(1), rows),
                "flags": pa.repeat(pa.scalar(0, pa.int32()), rows),
            }
        )
        offset += rows
        pq.write_table(table, folder / f"{number:05}.parquet")


def run_batches(  # noqa: PLR0913 - the differences between benchmarks
    session: SparkSession,
    source: Path,
    work: Path,
    functions: StatefulFunctions,
    *,
    arrow: bool = True,
    after: Callable[[int], None] = lambda _: None,
) -> Run:
    """Run the operator over micro-batches on a fresh checkpoint; ``after`` gets each number."""
    checkpoint = Folder.at(work / f"checkpoint-{next(_numbers)}")
    payload = Payload.of(Program(functions, {"bench/out": Sink.for_kafka()}))
    operator = Operator(payload, SegmentWriter(checkpoint), 1000, 1000, SystemClock(), arrow=arrow)
    seconds: list[float] = []

    def stage(frame: DataFrame, number: int) -> None:
        announce(session.sparkContext, Announcement(SystemClock().now(), number - 2))
        began = time.perf_counter()
        outcomes = [Outcome.FromString(bytes(row.outcome)) for row in frame.collect()]
        seconds.append(time.perf_counter() - began)
        for outcome in outcomes:
            if outcome.HasField("failure"):
                raise SystemExit(outcome.failure.message)
        after(number)

    rows = (
        session.readStream.schema(ROW_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    )
    query = (
        dispatch(rows, operator, {})
        .writeStream.foreachBatch(stage)
        .option("checkpointLocation", checkpoint.spark_uri)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p.numInputRows]
    return Run(seconds, [p.durationMs["triggerExecution"] / 1000 for p in progress])
