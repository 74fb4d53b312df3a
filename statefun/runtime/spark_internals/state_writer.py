# SPDX-License-Identifier: Apache-2.0
"""Replaces the state in a checkpoint, with the classes of Spark's offline repartitioning.

Based on ``StateRewriter.scala`` and ``StatePartitionAllColumnFamiliesReader.scala`` of Spark 4.2.0. The class
``StateRewriter`` takes settings and schema from a batch M. It passes the state after M, as a DataFrame, to a function,
and writes the DataFrame that the function returns as the state after batch N. Each partition of the returned DataFrame
becomes a partition of the state. A row has the grouping key as a struct, key and state in the store's form without
the byte for the version of the encoding, and the name of the only column family.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from statefun.runtime.spark_internals.jvm import accept_calls, jvm
from statefun.runtime.spark_internals.store_files import OPERATOR
from statefun.runtime.spark_internals.store_rows import key_row, state_row

_FAMILY = "default"


def write_states(  # noqa: PLR0913 - each is a part of the written state
    session: SparkSession,
    checkpoint: str,
    states: DataFrame,
    *,
    key: str,
    like: int,
    batch: int,
    partitions: int,
) -> list[str]:
    """Write the state after a planned, uncommitted micro-batch; return the id of the new version of each partition.

    Args:
        session: a session with the settings of the checkpoint's query.
        checkpoint: the location of the checkpoint.
        states: the keys and states, in two binary columns; no key occurs twice.
        key: the name of the grouping column.
        like: the number of an earlier, committed micro-batch, whose settings and schema the new state gets.
        batch: the number of the micro-batch.
        partitions: the number of partitions, as the plan of the micro-batch has it.
    """
    _ = session.streams  # makes the coordinator of stores, which executors ask
    accept_calls()
    packages = jvm()
    none = packages.scala.Option.empty()
    replaced = packages.scala.Option.apply(_Replacement(states, key, partitions))
    rewriter = packages.org.apache.spark.sql.execution.streaming.state.StateRewriter(
        session._jsparkSession,  # noqa: SLF001 - it has no public name
        like,
        batch,
        checkpoint,
        session._jsparkSession.sessionState().newHadoopConf(),  # noqa: SLF001 - as above
        none,
        replaced,
        none,
    )
    versions = rewriter.run().get().apply(int(OPERATOR))
    return [str(versions[number][0]) for number in range(partitions)]


class _Replacement:
    """The function that Spark calls with the present state; it returns the new one."""

    class Java:  # read by py4j
        implements = ("scala.Function1",)

    def __init__(self, states: DataFrame, key: str, partitions: int) -> None:
        self._states = states
        self._key = key
        self._partitions = partitions

    def apply(self, _present: object) -> object:
        """Return the rows of the new state, whatever the present rows are."""
        key = f"partition_key struct<{self._key}: binary>"
        others = "key_bytes binary, value_bytes binary, column_family_name string"
        rows = self._states.mapInArrow(partial(_rows, self._key), f"{key}, {others}")
        return rows.repartition(self._partitions, "partition_key")._jdf  # noqa: SLF001 - it has no public name


def _rows(key: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert Arrow batches of keys and states to the rows of a state store, in Spark's workers."""
    for batch in batches:
        keys, states = (batch.column(number).to_pylist() for number in range(2))
        columns = {
            "partition_key": pa.StructArray.from_arrays([pa.array(keys, pa.binary())], [key]),
            "key_bytes": pa.array([key_row(each)[1:] for each in keys], pa.binary()),
            "value_bytes": pa.array([state_row(each)[1:] for each in states], pa.binary()),
            "column_family_name": pa.array([_FAMILY] * len(keys), pa.string()),
        }
        yield pa.record_batch(columns)
