# SPDX-License-Identifier: Apache-2.0
"""A streaming source that this process plans: the JVM asks a Python object for offsets and tasks.

For a data source in Python, Spark itself starts separate processes that plan it: for one application, five
processes would start and import PySpark, and one of them would keep running.

Based on ``MicroBatchExecution.scala``, ``StreamingRelationV2.scala``, ``MicroBatchScanExec.scala`` and
``memory.scala`` (``MemoryStreamInputPartition``) of Spark 4.0.2, 4.1.2 and 4.2.0: a source is a table whose scan makes
a stream; table, scan and stream are interfaces. Spark compares streams, and logs their names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from statefun.runtime.spark_internals.jvm import accept_calls, jvm, new_array
from statefun.runtime.spark_internals.versions import RELEASE

logger = logging.getLogger("statefun")

TASK = "task"
"""The only column of a source's rows; each row is a task, as bytes."""
_SCHEMA = StructType([StructField(TASK, BinaryType())])
_CONNECTOR = "org.apache.spark.sql.connector"

Offset = dict[str, Any]
"""A position in a source, as a dict that can be written as JSON."""


class Source(Protocol):
    """Decides in the driver which records each micro-batch reads."""

    def initial_offset(self) -> Offset:
        """Return the offset before the first record."""

    def latest_offset(self, start: Offset) -> Offset:
        """Return the offset up to which the next micro-batch may read; ``start`` if there is no newer record."""

    def tasks(self, start: Offset, end: Offset) -> Sequence[bytes]:
        """Divide the records between two offsets among tasks, each as bytes; equal offsets give equal tasks."""

    def bound(self) -> None:
        """From now on, plan to read only records that exist now, since the run is to end (``available-now``)."""

    def stop(self) -> None:
        """Release connections and other resources, since the query has ended."""


class MeasuredSource(Source, Protocol):
    """A source with metrics, which Spark shows in its progress reports."""

    def metrics(self) -> Mapping[str, int]:
        """Return the present metrics by name, without waiting: each micro-batch waits for this call."""


class StillSource:
    """A source without records, whose offset stays the same."""

    def initial_offset(self) -> Offset:
        """Return an empty offset."""
        return {}

    def latest_offset(self, start: Offset) -> Offset:
        """Return the present offset."""
        return start

    def tasks(self, start: Offset, end: Offset) -> Sequence[bytes]:
        """Return no tasks."""
        del start, end
        return ()

    def bound(self) -> None:
        """Do nothing: nothing is read anyway."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


def planned_tasks(
    session: SparkSession, name: str, source: Source, failed: Callable[[Exception], None]
) -> DataFrame:
    """Return the tasks of a source as a streaming DataFrame: each task is a row in a partition of its own.

    Spark's progress reports count these tasks as the rows of the source.

    Args:
        session: the session.
        name: the name of the source in Spark's logs.
        source: decides on offsets and tasks, in a thread of this process that Spark calls.
        failed: is called with an exception that ``source`` has raised; the query then ends.
    """
    accept_calls()
    packages, none = jvm(), jvm().scala.Option.empty()
    has_metrics = callable(getattr(source, "metrics", None))
    kind = _MeasuredStream if has_metrics else _Stream
    stream = kind(name, source, failed)
    relation = packages.org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
    # Since 4.2, a source of a streaming query has a name, or is without one.
    nameless = [getattr(relation, "apply$default$9")()] if RELEASE >= (4, 2) else []
    plan = relation(
        none,
        name,
        stream,
        packages.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty(),
        packages.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(stream.schema),
        none,
        none,
        none,
        *nameless,
    )
    of_rows = packages.org.apache.spark.sql.classic.Dataset.ofRows
    return DataFrame(of_rows(session._jsparkSession, plan), session)  # noqa: SLF001 - it has no public name


class _Stream:
    """A source in the form of Spark's table, scan and stream; its methods have Spark's names."""

    class Java:  # read by py4j
        implements = (
            f"{_CONNECTOR}.catalog.SupportsRead",
            f"{_CONNECTOR}.read.ScanBuilder",
            f"{_CONNECTOR}.read.Scan",
            f"{_CONNECTOR}.read.streaming.MicroBatchStream",
            f"{_CONNECTOR}.read.streaming.SupportsTriggerAvailableNow",
        )

    def __init__(self, name: str, source: Source, failed: Callable[[Exception], None]) -> None:
        sql = jvm().org.apache.spark.sql
        self._name = name
        self._source = source
        self._failed = failed
        self._connector = sql.connector
        self.schema = sql.types.DataType.fromJson(_SCHEMA.json())
        self._offset = lru_cache(4)(sql.execution.datasources.v2.python.PythonStreamingSourceOffset)
        rows, streaming = sql.catalyst.expressions, sql.execution.streaming
        memory = streaming.runtime if RELEASE >= (4, 1) else streaming
        self._value, self._row = jvm().java.lang.Object, rows.GenericInternalRow
        self._unsafe_row, self._to_unsafe = (
            rows.UnsafeRow,
            rows.UnsafeProjection.create(self.schema),
        )
        self._partition = memory.MemoryStreamInputPartition
        self._reader_factory = getattr(memory, "MemoryStreamReaderFactory$")
        self._planned: tuple[str, str, Any] = ("", "", None)
        """The start, end and partitions that were planned last: Spark asks for them twice."""

    def name(self) -> str:
        return self._name

    def description(self) -> str:
        return self._name

    def capabilities(self) -> Any:
        return jvm().java.util.Set.of(self._connector.catalog.TableCapability.MICRO_BATCH_READ)

    def newScanBuilder(self, _options: Any) -> _Stream:  # noqa: N802 - Spark's
        return self

    def build(self) -> _Stream:
        return self

    def toMicroBatchStream(self, _checkpoint: str) -> _Stream:  # noqa: N802 - Spark's
        return self

    def readSchema(self) -> Any:  # noqa: N802 - Spark's
        return self.schema

    def columnarSupportMode(self) -> Any:  # noqa: N802 - Spark's
        return getattr(self._connector.read, "Scan$ColumnarSupportMode").UNSUPPORTED

    def supportedCustomMetrics(self) -> Any:  # noqa: N802 - Spark's
        return new_array(self._connector.metric.CustomMetric, [])

    def reportDriverMetrics(self) -> Any:  # noqa: N802 - Spark's
        return new_array(self._connector.metric.CustomTaskMetric, [])

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's
        return self._connector.read.streaming.ReadLimit.allAvailable()

    def reportLatestOffset(self) -> None:  # noqa: N802 - Spark's
        return None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        with self._reporting():
            self._source.bound()

    def initialOffset(self) -> Any:  # noqa: N802 - Spark's
        with self._reporting():
            return self._offset(json.dumps(self._source.initial_offset()))

    def deserializeOffset(self, text: str) -> Any:  # noqa: N802 - Spark's
        return self._offset(text)

    def latestOffset(self, start: Any, _limit: Any) -> Any:  # noqa: N802 - Spark's
        with self._reporting():
            latest = self._source.latest_offset(json.loads(start.json()))
            return self._offset(json.dumps(latest))

    def planInputPartitions(self, start: Any, end: Any) -> Any:  # noqa: N802 - Spark's
        with self._reporting():
            first, last = start.json(), end.json()
            if self._planned[:2] != (first, last):
                tasks = self._source.tasks(json.loads(first), json.loads(last))
                partitions = [self._one_row(task) for task in tasks]
                array = new_array(self._connector.read.InputPartition, partitions)
                self._planned = (first, last, array)
            return self._planned[2]

    def createReaderFactory(self) -> Any:  # noqa: N802 - Spark's
        return getattr(self._reader_factory, "MODULE$")

    def commit(self, _end: Any) -> None:
        """Do nothing: no source needs to know that a micro-batch is committed."""

    def stop(self) -> None:
        self._source.stop()

    def equals(self, other: object) -> bool:
        return other is self

    def hashCode(self) -> int:  # noqa: N802 - Java's
        return 1

    def toString(self) -> str:  # noqa: N802 - Java's
        return self._name

    def _one_row(self, task: bytes) -> Any:
        """Return one of Spark's partitions, with one row that contains the task."""
        values = new_array(self._value, [bytearray(task)])
        row = self._to_unsafe.apply(self._row(values)).copy()
        return self._partition(new_array(self._unsafe_row, [row]))

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Pass an exception to ``failed``, and raise a short one instead: Spark cannot handle long texts."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - every error is reported as the end of the query
            self._failed(error)
            raise RuntimeError(
                "the micro-batch was not planned; the application's error has the reason"
            ) from None


class _MeasuredStream(_Stream):
    """A source with metrics in the form of Spark's table, scan and stream."""

    _source: MeasuredSource
    _has_logged = False

    class Java:
        implements = (
            *_Stream.Java.implements,
            f"{_CONNECTOR}.read.streaming.ReportsSourceMetrics",
        )

    def metrics(self, _latest: Any) -> Any:
        texts = jvm().java.util.HashMap()
        try:
            for name, value in self._source.metrics().items():
                texts[str(name)] = str(int(value))
        except Exception as error:  # noqa: BLE001 - no reason to end the query
            if not self._has_logged:
                self._has_logged = True
                logger.warning(
                    "ingress %s: its metrics are missing in Spark's progress reports: %r",
                    self._name,
                    error,
                )
        return texts
