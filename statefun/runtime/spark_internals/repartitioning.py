# SPDX-License-Identifier: Apache-2.0
"""Divides the state in a checkpoint into another number of partitions, with Spark's offline repartitioning.

Based on ``OfflineStateRepartitionRunner.scala`` and ``StateRewriter.scala`` of Spark 4.2.0, which have no public API
yet. After batch N, Spark plans a batch N + 1 with the offsets of N and the new number of partitions, writes the state
as snapshots of version N + 2, and commits the batch. The session's setting for the checkpoint format must agree with
the checkpoint. Batch N must be committed, and no other batch may be planned.
"""

from __future__ import annotations

from pyspark.sql import SparkSession


def repartition(session: SparkSession, checkpoint: str, partitions: int) -> None:
    """Commit a micro-batch without input, after which the state has another number of partitions.

    Args:
        session: a session with the settings of the checkpoint's query.
        checkpoint: the location of the checkpoint.
        partitions: the number of partitions, which must differ from the present one.
    """
    _ = session.streams  # makes the coordinator of stores, which executors ask
    manager = session._streamingCheckpointManager  # noqa: SLF001 - it has no public name yet
    manager.repartition(checkpoint, partitions)
