# SPDX-License-Identifier: Apache-2.0
"""How the driver's time reaches the tasks of a micro-batch: as a property of their Spark job."""

from __future__ import annotations

from pyspark import SparkContext, TaskContext

from statefun.runtime.clock import BatchClock, Clock

_PROPERTY = "statefun.time"


def announce_time(context: SparkContext, clock: Clock) -> None:
    """Let the jobs that this thread starts from now on have the time of ``clock``."""
    context.setLocalProperty(_PROPERTY, str(clock.now()))


def batch_clock(clock: Clock) -> BatchClock:
    """Return the clock for the task that this process runs; ``clock`` is the process's own."""
    task = TaskContext.get()
    announced = task.getLocalProperty(_PROPERTY) if task else None
    if announced is None:
        raise AssertionError("the driver announces the time before it starts a micro-batch's job")
    return BatchClock(clock, int(announced))
