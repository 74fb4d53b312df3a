# SPDX-License-Identifier: Apache-2.0
"""Reads the records of an ingress through a connector, as a streaming DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pkgutil import resolve_name

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from statefun.module.connectors import ConnectorIngress, owner_of
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.connector_failures import named_failures, with_owner
from statefun.runtime.ingress.checked_reading import (
    CheckedSource,
    checked_batches,
    checked_records,
)
from statefun.runtime.ingress.routing import route
from statefun.runtime.spark_internals.arrow_functions import arrow_schema
from statefun.runtime.spark_internals.driver_source import (
    Offset,
    Source,
    planned_tasks,
)

RECORDS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        # One of the ingress's routes takes this topic.
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        # Grows from record to record of a partition: records of one key are handled in this order.
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)
"""The columns of a connector's records: the columns of Spark's Kafka source."""
RECORDS_ARROW = arrow_schema(RECORDS)
"""The columns of a connector's records (:data:`RECORDS`) as an Arrow schema."""


@attrs.frozen
class Reading:
    """The argument of a connector's reader, which must return a streaming DataFrame of :data:`RECORDS`."""

    session: SparkSession
    ingress: ConnectorIngress
    folder: Folder
    """A folder of the checkpoint for files that must outlast the run."""
    records_per_batch: int
    """The largest number of records that one micro-batch may read."""
    timeout: timedelta
    """How long the reader may try to reach a server at start."""
    is_fresh: bool
    """Whether the ingress is new to the checkpoint: no micro-batch with it was planned yet."""
    committed: Callable[[], Offset | None]
    """A function that returns the source's end offset in the newest micro-batch that is committed durably.

    Records up to this offset are never read again. The function returns None before the first commit."""
    opened: Callable[[Source], None]
    """A function to which the reader passes each of its sources, so that the run stops the source at its end.

    The run stops the sources before it stops the query, because the query waits for its sources."""
    failed: Callable[[Exception], None]
    """A function that ends the query with an error; it may be called in any thread."""
    may_read: Callable[[], bool] = lambda: True
    """A function that returns False while the ingress is paused, or while too many messages wait.

    The sources of :meth:`planned` then read nothing."""

    def planned(
        self, source: Source, read: Callable[[bytes], Iterable[pa.RecordBatch]]
    ) -> DataFrame:
        """Return the records of ``source`` as a streaming DataFrame; this process plans what each batch reads.

        Args:
            source: decides in this process which records each micro-batch reads.
            read: reads one task of the source in a worker, and yields Arrow batches of
                :data:`RECORDS_ARROW`; must be a function at the top level of a module, so that it can be
                pickled.
        """
        owner = owner_of(self.ingress)

        def read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from checked_batches(owner, read, task, RECORDS_ARROW)

        checked = CheckedSource(owner, source, self.may_read)
        self.opened(checked)
        tasks = planned_tasks(
            self.session,
            str(self.ingress.id),
            checked,
            lambda error: self.failed(with_owner(owner, error)),
        )
        return tasks.mapInArrow(read_all, RECORDS)


def read_connector(reading: Reading) -> DataFrame:
    """Read the records of a connector's ingress, and return a row for each record and target.

    Raises:
        StatefunError: if the reader fails, or does not return a streaming DataFrame of records.
    """
    ingress, owner = reading.ingress, owner_of(reading.ingress)
    with named_failures(owner):
        records = resolve_name(ingress.reader)(reading)
    checked = checked_records(owner, records, RECORDS, ingress.topics)
    return route(checked, ingress.id, ingress.topics)
