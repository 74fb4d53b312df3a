# SPDX-License-Identifier: Apache-2.0
"""Computes the ids of records whose keys transforms change, an Arrow batch of records at a time.

This happens before records go to the tasks of their addresses, since an id is a part of an address.
Values are transformed later, where functions run: so a value that cannot be transformed becomes a dead letter
unchanged, and no further process has to read and write all records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import BinaryType

from statefun.module.topic_routes import TopicRoute
from statefun.module.transforming import no_id, transformed_id
from statefun.runtime.columns import values_of
from statefun.runtime.spark_internals.arrow_functions import arrow_udf
from statefun.sdk.errors import RecordError, StatefunError
from statefun.sdk.record import EncodedRecord

_PATIENCE = timedelta(seconds=10)
"""How long a schema registry may be unreachable before the run ends."""
_PAUSE = timedelta(seconds=1)
_make_record = partial(tuple.__new__, EncodedRecord)


def transformed_ids(routes: Mapping[int, TopicRoute], number: Column) -> Column:
    """Return a column of ids that transforms compute from records; null for records that cannot be transformed.

    Args:
        routes: the routes of an ingress by their numbers.
        number: the column with the number of a record's route.
    """
    changing_chains = [
        (each, route.chain)
        for each, route in routes.items()
        if route.chain is not None and route.changes_key
    ]
    # Only the chains, not their routes: workers of this step need no code of users.
    id_functions = {each: partial(transformed_id, chain) for each, chain in changing_chains}

    def ids_of(  # noqa: PLR0913, PLR0917 - the parts of a record
        numbers: pa.Array,
        topics: pa.Array,
        partitions: pa.Array,
        offsets: pa.Array,
        timestamps: pa.Array,
        keys: pa.Array,
        values: pa.Array,
    ) -> pa.Array:
        columns = (topics, partitions, offsets, timestamps, keys, values)
        records = map(_make_record, zip(*map(values_of, columns), strict=True))
        ids = [
            None if (id_of := id_functions.get(route)) is None else _patient_id(id_of, record)
            for route, record in zip(values_of(numbers), records, strict=True)
        ]
        return pa.array(ids, pa.binary())

    reads_values = any(chain.reads_value_for_key for _, chain in changing_chains)
    value = F.col("value") if reads_values else F.lit(None)
    vectorised = arrow_udf(ids_of, BinaryType())
    place = ("topic", "partition", "offset", F.unix_millis("timestamp"))
    return vectorised(number, *place, "key", value.cast("binary"))


def _patient_id(id_of: Callable[[EncodedRecord], bytes], record: EncodedRecord) -> bytes | None:
    """Return the id of a record; if a service that its transforms need is unreachable, retry for a while.

    Returns:
        None if the record cannot be transformed; the record is then rejected, and the code that handles the
        rejection runs the transforms once more, to get the error.

    Raises:
        FunctionError: if the service stays unreachable.
    """
    deadline: float | None = None
    while True:
        try:
            return id_of(record)
        except RecordError:
            return None
        except StatefunError as error:
            now = time.monotonic()
            deadline = now + _PATIENCE.total_seconds() if deadline is None else deadline
            if now >= deadline:
                raise no_id(record, error) from None
        time.sleep(_PAUSE.total_seconds())
