# SPDX-License-Identifier: Apache-2.0
"""Checks the records, offsets and record batches that a connector's reader returns.

The error about a mistake of a reader is one sentence that names the ingress. Spark would report some of these
mistakes in terms of its query plan. Spark would not report a record whose topic belongs to no route of the
ingress: such a record has no target, so it would disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from statefun.module.topic_routes import TopicRoute
from statefun.runtime.calls.worker_calls import company_of_worker
from statefun.runtime.connector_failures import named_failures
from statefun.runtime.ingress.routing import chosen_by_topic
from statefun.runtime.spark_internals.driver_source import Offset, Source
from statefun.sdk.errors import ConnectorError

_METHODS = ("initial_offset", "latest_offset", "tasks", "bound", "stop")


def checked_records(
    owner: str, records: object, schema: StructType, routes: Sequence[TopicRoute]
) -> DataFrame:
    """Check the DataFrame that a connector's reader has returned, and return it with the columns for routing.

    Args:
        owner: the ingress and its reader, for error texts.
        records: the object that the reader has returned.
        schema: the columns that routing needs; further columns are dropped.
        routes: the routes of the ingress.

    Raises:
        ConnectorError: if the object is not a streaming DataFrame with these columns.
    """
    if not isinstance(records, DataFrame):
        kind = "None" if records is None else f"a {type(records).__name__}"
        raise ConnectorError(f"{owner} must return a streaming DataFrame, but has returned {kind}")
    if not records.isStreaming:
        raise ConnectorError(
            f"{owner} must return a streaming DataFrame, but has returned a DataFrame that is not streaming; "
            "make it with session.readStream"
        )
    problems = "; ".join(_column_problems(records.schema, schema))
    if problems:
        raise ConnectorError(
            f"{owner} must return a DataFrame with the columns of statefun.components.running.RECORDS: {problems}"
        )
    return with_checked_rows(owner, records.select(schema.names), routes)


def _column_problems(actual: StructType, required: StructType) -> Iterator[str]:
    for column in required:
        # Spark ignores the case of column names.
        types = [each.dataType for each in actual if each.name.lower() == column.name]
        type_ = column.dataType.simpleString()
        if not types:
            yield f"there is no column {column.name} ({type_})"
        elif len(types) > 1:
            yield f"there are {len(types)} columns {column.name}"
        elif types[0].simpleString() != type_:
            yield f"{column.name} is of type {types[0].simpleString()} instead of {type_}"


def with_checked_rows(owner: str, records: DataFrame, routes: Sequence[TopicRoute]) -> DataFrame:
    """Add a check: a record without a route, a partition, an offset or a timestamp ends the run."""
    error = ConnectorError(f"{owner} has returned a record ")
    # In the form of a traceback's last line, where the driver finds the errors of tasks.
    start = f"\n{type(error).__module__}.{type(error).__name__}: {error}"
    rules = (
        "; each record must have a topic that a route takes, a partition, an offset and a timestamp, and "
        "each of its headers must have a key\n"
    )
    shown = F.to_json(F.struct("topic", "partition", "offset", "timestamp"))
    place = F.col("partition").isNull() | F.col("offset").isNull() | F.col("timestamp").isNull()
    is_wrong = ~_has_route(routes) | place | _has_nameless_header()
    message = F.concat(F.lit(start), shown, F.lit(rules))
    topic = F.when(is_wrong, F.raise_error(message).cast("string")).otherwise(F.col("topic"))
    return records.withColumn("topic", topic)


def _has_route(routes: Sequence[TopicRoute]) -> Column:
    return F.coalesce(chosen_by_topic(routes, [F.lit(True)] * len(routes)), F.lit(False))


def _has_nameless_header() -> Column:
    # Functions find headers by their keys.
    nameless = F.exists("headers", lambda header: header["key"].isNull())
    return F.when(F.size("headers") > 0, F.coalesce(nameless, F.lit(False))).otherwise(False)


class CheckedSource:
    """Wraps a connector's source and checks its results; errors name the connector and its mistake.

    Args:
        owner: the ingress and its reader, for error texts.
        source: the connector's source.
        may_read: returns whether the next micro-batch may read records of the source.

    Raises:
        ConnectorError: if the source lacks a required method.
    """

    def __init__(
        self, owner: str, source: Source, may_read: Callable[[], bool] = lambda: True
    ) -> None:
        self._owner = owner
        self._source = source
        self._may_read = may_read
        self._before: Offset | None = None
        """The offset for which the source was last read; None if it was not read yet."""
        self._start: Offset | None = None
        """The offset at which the next micro-batch begins; None if Spark has not asked yet."""
        self._ahead: Offset | None = None
        """The end offset that the source has returned for ``_start`` while it was not read; None if not asked."""
        for name in _METHODS:
            if not callable(getattr(source, name, None)):
                kind = type(source).__name__
                raise ConnectorError(
                    f"{owner}: a source must have a method {name}, and {kind} has none"
                )
        if callable(metrics := getattr(source, "metrics", None)):
            self.metrics = metrics

    def initial_offset(self) -> Offset:
        """Return the source's offset before the first record."""
        return self._offset("initial_offset", self._source.initial_offset())

    def latest_offset(self, start: Offset) -> Offset:
        """Return the offset up to which a micro-batch that begins at ``start`` can read."""
        if start != self._start:
            self._start, self._ahead = start, None
        if not self._may_read():
            return start
        end = self._ahead
        if end is None or end == start:
            end = self._offset("latest_offset", self._source.latest_offset(start))
        self._before, self._start, self._ahead = start, end, None
        return end

    def has_next(self, read: Offset | None) -> bool:
        """Return whether the micro-batch that is planned now reads records; False if that is not known yet.

        Call this in the thread that plans micro-batches, while the source may be read.

        Args:
            read: the source's end offset in the newest planned micro-batch.
        """
        return read is not None and read == self._before and self._start != read

    def has_more(self) -> bool:
        """Return whether the source, which is not read at present, has records for a further micro-batch.

        Call this in a bounded run only, in the thread that plans micro-batches: the source is asked once, and
        a later micro-batch reads what it has returned.
        """
        if self._start is None:
            return True
        if self._ahead is None:
            with named_failures(self._owner):  # the thread that plans knows another source
                end = self._source.latest_offset(self._start)
            self._ahead = self._offset("latest_offset", end)
        return self._ahead != self._start

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Divide the records between two offsets among tasks, each of which is encoded as bytes."""
        tasks = list(self._source.tasks(start, end))
        for task in tasks:
            if not isinstance(task, bytes):
                raise ConnectorError(
                    f"{self._owner}: the method tasks must return bytes for each task, but has returned a "
                    f"{type(task).__name__}"
                )
        return tasks

    def bound(self) -> None:
        """Make the source read only records that exist now, and no records that are written later."""
        self._source.bound()

    def stop(self) -> None:
        """Stop the source, which releases its resources."""
        self._source.stop()

    def _offset(self, method: str, offset: object) -> Offset:
        if isinstance(offset, dict):
            return offset
        raise ConnectorError(
            f"{self._owner}: the method {method} must return an offset (a dict that can be written as JSON), "
            f"but has returned {offset!r:.200}"
        )


def checked_batches(
    owner: str, read: Callable[[bytes], Iterable[pa.RecordBatch]], task: bytes, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches that a connector reads in a task, checked; runs in a worker.

    If a long call runs alone in the worker, reading begins after the call has ended: otherwise, if the connector ended
    the process, the driver would blame the call.

    Raises:
        ConnectorError: if an item is not a record batch with the columns of ``schema``.
    """
    with company_of_worker().plain_calls(), named_failures(owner):
        for batch in read(task):
            if not isinstance(batch, pa.RecordBatch):
                kind = type(batch).__name__
                raise ConnectorError(
                    f"{owner}: the connector must yield Arrow record batches when it reads a task, but has yielded a {kind}"
                )
            if (batch.schema.names, batch.schema.types) != (schema.names, schema.types):
                columns = ", ".join(f"{field.name}: {field.type}" for field in batch.schema)
                raise ConnectorError(
                    f"{owner}: reading a task must yield record batches with the columns of "
                    "statefun.components.running.RECORDS_ARROW, but has yielded one with the columns "
                    f"{columns}"
                )
            yield batch
