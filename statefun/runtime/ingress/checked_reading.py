# SPDX-License-Identifier: Apache-2.0
"""Checks of the records, offsets and batches that a connector's reader returns.

Each mistake becomes one sentence that names the ingress. Spark would report some of them in terms of
its plan, and would not report a record whose topic no route takes: such a record has no target, so it
would disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from statefun.module.topic_routes import TopicRoute
from statefun.runtime.connector_failures import named_failures
from statefun.runtime.ingress.routing import chosen_by_topic
from statefun.runtime.spark_internals.driver_source import Offset, Source
from statefun.sdk.errors import ConnectorError

_METHODS = ("initial_offset", "latest_offset", "tasks", "bound", "stop")


def checked_records(
    owner: str, records: object, schema: StructType, routes: Sequence[TopicRoute]
) -> DataFrame:
    """Check the records that a reader has returned, and return the columns that routing needs.

    Args:
        owner: the ingress and its reader, for error messages.
        records: the object that the reader has returned.
        schema: the columns that routing needs; others are left out.
        routes: the routes of the ingress.

    Raises:
        ConnectorError: if the object is not a streaming DataFrame of such records.
    """
    if not isinstance(records, DataFrame):
        kind = "None" if records is None else f"a {type(records).__name__}"
        raise ConnectorError(f"{owner} returns {kind}; a reader returns a streaming DataFrame")
    if not records.isStreaming:
        raise ConnectorError(
            f"{owner} returns a DataFrame that is not streaming; make it by session.readStream"
        )
    problems = "; ".join(_column_problems(records.schema, schema))
    if problems:
        raise ConnectorError(
            f"{owner} returns a DataFrame whose columns are not those of RECORDS: {problems}"
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
    """Return the records with a check: one that cannot be routed or ordered ends the run."""
    error = ConnectorError(f"{owner} gives a record ")
    # In the form of a traceback's last line, where the driver finds the errors of tasks.
    start = f"\n{type(error).__module__}.{type(error).__name__}: {error}"
    rules = (
        "; each record has a topic that a route takes, a partition, an offset and a timestamp, and "
        "each of its headers a key\n"
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
    """A connector's source with checked results: an error names the connector and its mistake.

    Raises:
        ConnectorError: if the source lacks a method.
    """

    def __init__(self, owner: str, source: Source) -> None:
        self._owner = owner
        self._source = source
        for name in _METHODS:
            if not callable(getattr(source, name, None)):
                kind = type(source).__name__
                raise ConnectorError(f"{owner} plans a {kind}, which has no method {name}")
        if callable(metrics := getattr(source, "metrics", None)):
            self.metrics = metrics

    def initial_offset(self) -> Offset:
        """Return the position before the first record."""
        return self._offset("initial_offset", self._source.initial_offset())

    def latest_offset(self, start: Offset) -> Offset:
        """Return the position up to which a micro-batch can read."""
        return self._offset("latest_offset", self._source.latest_offset(start))

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Divide the records between two positions among tasks."""
        tasks = list(self._source.tasks(start, end))
        for task in tasks:
            if not isinstance(task, bytes):
                raise ConnectorError(
                    f"{self._owner}: tasks returns a {type(task).__name__}; it returns bytes for "
                    "each task"
                )
        return tasks

    def bound(self) -> None:
        """Read no further than the records that exist now."""
        self._source.bound()

    def stop(self) -> None:
        """Release the resources of the source."""
        self._source.stop()

    def _offset(self, method: str, offset: object) -> Offset:
        if isinstance(offset, dict):
            return offset
        raise ConnectorError(
            f"{self._owner}: {method} returns {offset!r:.200}; an offset is a dict that JSON can hold"
        )


def checked_batches(
    owner: str, read: Callable[[bytes], Iterable[pa.RecordBatch]], task: bytes, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the batches that a connector reads in a task; runs in a worker.

    Raises:
        ConnectorError: if an item is not a record batch with the columns of ``schema``.
    """
    with named_failures(owner):
        for batch in read(task):
            if not isinstance(batch, pa.RecordBatch):
                kind = type(batch).__name__
                raise ConnectorError(f"{owner} reads a {kind}; a task yields Arrow record batches")
            if (batch.schema.names, batch.schema.types) != (schema.names, schema.types):
                columns = ", ".join(f"{field.name}: {field.type}" for field in batch.schema)
                raise ConnectorError(
                    f"{owner} reads a batch of the columns {columns}; make it with RECORDS_ARROW"
                )
            yield batch
