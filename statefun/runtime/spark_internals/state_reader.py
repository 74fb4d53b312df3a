# SPDX-License-Identifier: Apache-2.0
"""The state of ``applyInPandasWithState`` as Spark's reader of state stores shows it.

From ``StatePartitionReader.scala`` and ``FlatMapGroupsWithStateExecHelper.scala`` (``StateManagerImplV2``) of
Spark 4.2.0: the grouping key is in the column ``key``, and the state in ``value.groupState``.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it


def read_states(session: SparkSession, checkpoint: str, key: str, state: str) -> DataFrame:
    """Return the grouping column and the column of the state, as of the newest committed batch.

    Args:
        session: a session; its settings do not matter.
        checkpoint: the location of the checkpoint.
        key: the grouping column.
        state: the only column of the state.
    """
    # The reader asks the coordinator of stores, which the first query of a process makes.
    _ = session.streams
    store = session.read.format("statestore").load(checkpoint)
    return store.select(F.col(f"key.{key}"), F.col(f"value.groupState.{state}"))
