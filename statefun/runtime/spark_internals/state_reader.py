# SPDX-License-Identifier: Apache-2.0
"""Reads the state of ``applyInPandasWithState`` with Spark's reader of state stores.

Based on ``StatePartitionReader.scala``, ``StateDataSource.scala`` and ``FlatMapGroupsWithStateExecHelper.scala``
(``StateManagerImplV2``) of Spark 4.1.2 and 4.2.0: the grouping key is in the column ``key``, and the state in
``value.groupState``. The reader needs two things that are not documented:

- The session's setting for the checkpoint format, and not the checkpoint, decides how the reader finds files. With
  format 1, the default, it takes the file name ``12_<id>.zip`` for a number, and fails with ``NumberFormatException``.
  The reader looks at this setting when it is made. When it reads, it uses the settings of the session that has made it.
- Executors ask the coordinator of stores, which the first use of ``session.streams`` makes in the driver. Without it the
  reader fails with ``Cannot find endpoint: .../StateStoreCoordinator``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it

from statefun.runtime.spark_internals.jvm import jvm
from statefun.runtime.spark_internals.versions import RELEASE

READS_IDS = RELEASE >= (4, 1)
"""Whether Spark's reader reads states whose files have ids in their names, as in checkpoint format 2."""
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def read_states(
    session: SparkSession, checkpoint: str, key: str, state: str, batch: int | None = None
) -> DataFrame:
    """Return a DataFrame with the grouping key and the state of each group, as of a committed micro-batch.

    Args:
        session: a session for this reader alone, which sets what the reader needs.
        checkpoint: the location of the checkpoint.
        key: the name of the grouping column.
        state: the name of the state's only column.
        batch: the number of the micro-batch; None for the newest committed one.
    """
    _ = session.streams
    session.conf.set(_FORMAT, "2")
    reader = session.read.format("statestore")
    if batch is not None:
        reader = reader.option("batchId", str(batch))
    store = reader.load(checkpoint)
    return store.select(F.col(f"key.{key}"), F.col(f"value.groupState.{state}"))


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """Move a DataFrame from its session to ``session``; readers of states in it keep the former session's settings."""
    plan = frame._jdf.queryExecution().logical()  # noqa: SLF001 - it has no public name
    datasets: Any = jvm()
    moved = datasets.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)  # noqa: SLF001 - as above
    return DataFrame(moved, session)
