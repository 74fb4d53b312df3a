# SPDX-License-Identifier: Apache-2.0
"""Reads the state of ``applyInPandasWithState`` with Spark's reader of state stores.

Based on ``StatePartitionReader.scala``, ``StateDataSource.scala`` and ``FlatMapGroupsWithStateExecHelper.scala``
(``StateManagerImplV2``) of Spark 4.1.2 and 4.2.0: the grouping key is in the column ``key``, and the state in
``value.groupState``. The reader needs two things that it does not say:

- The session's setting for the checkpoint format, and not the checkpoint, decides how the reader finds files. With
  format 1, the default, it takes the file name ``12_<id>.zip`` for a number, and fails with ``NumberFormatException``.
  The setting counts when the reader is made.
- Executors ask the coordinator of stores, which the first use of ``session.streams`` makes in the driver. Without it the
  reader fails with ``Cannot find endpoint: .../StateStoreCoordinator``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it

from statefun.runtime.spark_internals.versions import RELEASE

READS_IDS = RELEASE >= (4, 1)
"""Whether Spark's reader reads states whose files have ids in their names, as in checkpoint format 2."""
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def read_states(
    session: SparkSession, checkpoint: str, key: str, state: str, batch: int | None = None
) -> DataFrame:
    """Return a DataFrame with the grouping key and the state of each group, as of a committed micro-batch.

    Args:
        session: a session; its settings do not matter.
        checkpoint: the location of the checkpoint.
        key: the name of the grouping column.
        state: the name of the state's only column.
        batch: the number of the micro-batch; None for the newest committed one.
    """
    _ = session.streams
    reader = session.read.format("statestore")
    if batch is not None:
        reader = reader.option("batchId", str(batch))
    with _format_2(session):
        store = reader.load(checkpoint)
    return store.select(F.col(f"key.{key}"), F.col(f"value.groupState.{state}"))


@contextmanager
def _format_2(session: SparkSession) -> Iterator[None]:
    """Set the format of the checkpoints that a session reads to 2 in the ``with`` block."""
    before = session.conf.get(_FORMAT, None)
    session.conf.set(_FORMAT, "2")
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_FORMAT)
        else:
            session.conf.set(_FORMAT, before)
