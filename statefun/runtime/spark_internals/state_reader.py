# SPDX-License-Identifier: Apache-2.0
"""Reads the state of ``applyInPandasWithState`` with Spark's reader of state stores.

Based on ``StatePartitionReader.scala`` and ``FlatMapGroupsWithStateExecHelper.scala``
(``StateManagerImplV2``) of Spark 4.2.0: the grouping key is in the column ``key``, and the state in
``value.groupState``.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it


def read_states(session: SparkSession, checkpoint: str, key: str, state: str) -> DataFrame:
    """Return a DataFrame with the grouping key and the state of each group, as of the newest committed batch.

    Args:
        session: a session; its settings do not matter.
        checkpoint: the location of the checkpoint.
        key: the name of the grouping column.
        state: the name of the state's only column.
    """
    # The reader asks the coordinator of stores, which the first query of a process makes.
    _ = session.streams
    store = session.read.format("statestore").load(checkpoint)
    return store.select(F.col(f"key.{key}"), F.col(f"value.groupState.{state}"))
