# SPDX-License-Identifier: Apache-2.0
"""The ids of records whose keys transforms change, a batch of records at a time.

This happens before records go to the tasks of their addresses, as an id is a part of an address.
Values are transformed where functions run: a bad one is a dead letter as it was, and no further
process has to read and write all records.
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
from statefun.sdk.errors import StatefunError
from statefun.transforms.data import NOTHING, TransformError
from statefun.transforms.transform import Record

_PATIENCE = timedelta(seconds=10)
"""How long a schema registry may be away before the run ends."""
_PAUSE = timedelta(seconds=1)


def changes_key(route: TopicRoute) -> bool:
    """Return whether transforms change the keys of a route's records."""
    return route.chain is not None and route.chain.changes_key


def transformed_ids(routes: Mapping[int, TopicRoute], number: Column) -> Column:
    """Return the ids that transforms make of records; null where they cannot.

    Args:
        routes: the routes of an ingress by their numbers.
        number: that of a record's route.
    """
    # What decides between routes, but not users' code, which is of no use there.
    chains = {
        each: route.chain
        for each, route in routes.items()
        if route.chain is not None and changes_key(route)
    }

    def ids_of(  # noqa: PLR0913, PLR0917 - the parts of a record
        numbers: pa.Array,
        topics: pa.Array,
        partitions: pa.Array,
        offsets: pa.Array,
        timestamps: pa.Array,
        keys: pa.Array,
        values: pa.Array,
    ) -> pa.Array:
        columns = (numbers, topics, partitions, offsets, timestamps, keys, values)
        ids: list[bytes | None] = []
        for route, topic, partition, offset, timestamp, key, value in zip(
            *(column.to_pylist() for column in columns), strict=True
        ):
            chain = chains.get(route)
            if chain is None:
                ids.append(None)
                continue
            place = Record(topic, partition, offset, timestamp, NOTHING, NOTHING)
            try:
                ids.append(_patiently(partial(transformed_id, chain, place, key, value), place))
            except TransformError:
                ids.append(None)  # the record is rejected, which looks for the reason again
        return pa.array(ids, pa.binary())

    reads_values = any(chain.reads_value for chain in chains.values())
    value = F.col("value") if reads_values else F.lit(None)
    # PySpark's type hints leave the function out.
    vectorised: Callable[..., Column] = F.arrow_udf(ids_of, BinaryType())  # type: ignore[attr-defined]
    place = ("topic", "partition", "offset", F.unix_millis("timestamp"))
    return vectorised(number, *place, "key", value.cast("binary"))


def _patiently(transform: Callable[[], bytes], place: Record) -> bytes:
    """Return an id; a service that it needs may be away for a while.

    Raises:
        FunctionError: if it is for longer.
    """
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    while True:
        try:
            return transform()
        except StatefunError as error:
            if time.monotonic() >= deadline:
                raise no_id(place, error) from None
        time.sleep(_PAUSE.total_seconds())
