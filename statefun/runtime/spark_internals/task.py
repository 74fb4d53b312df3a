# SPDX-License-Identifier: Apache-2.0
"""Facts about a micro-batch that Spark's driver passes to the tasks of a streaming query.

Based on ``MicroBatchExecution.scala`` and ``StreamExecution.scala`` (``BATCH_ID_KEY``) of Spark 4.2.0:
the number of the micro-batch is a local property of its jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext, TaskContext

_BATCH_ID = "streaming.sql.batchId"


@contextmanager
def tasks_of_batch(context: SparkContext, batch: int) -> Iterator[None]:
    """Let the tasks that this thread starts during the block belong to a micro-batch, though no query runs it."""
    context.setLocalProperty(_BATCH_ID, f"{batch}")
    try:
        yield
    finally:
        context.setLocalProperty(_BATCH_ID, None)  # type: ignore[arg-type] # removes it


def batch_number() -> int:
    """Return the number of the micro-batch to which the present task belongs."""
    task = TaskContext.get()
    number = task and task.getLocalProperty(_BATCH_ID)
    if not number:
        raise AssertionError("batch_number must be called only in a task of a streaming query")
    return int(number)
