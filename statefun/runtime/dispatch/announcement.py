# SPDX-License-Identifier: Apache-2.0
"""What the driver tells the tasks of a micro-batch, as properties of their Spark job."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import SparkContext, TaskContext

from statefun.runtime.timers.clock import BatchClock, Clock

_TIME = "statefun.time"
_SETTLED = "statefun.settled"
_NOTHING = "nothing"


class Announcement(NamedTuple):
    """What only the driver knows."""

    time: int
    """When the micro-batch began by the driver's clock, in milliseconds since the epoch."""
    settled: int | None
    """Up to which micro-batch all messages were delivered before this one began.

    None while there are any that an earlier run has sent.
    """

    def clock(self, own: Clock) -> BatchClock:
        """Return the driver's clock as a task continues it; ``own`` is the worker's."""
        return BatchClock(own, self.time)


def announce(context: SparkContext, announcement: Announcement) -> None:
    """Tell the tasks of the jobs that this thread starts from now on."""
    time, settled = announcement
    context.setLocalProperty(_TIME, str(time))
    context.setLocalProperty(_SETTLED, _NOTHING if settled is None else str(settled))


def announced() -> Announcement:
    """Return what the task that this process runs was told."""
    task = TaskContext.get()
    time, settled = (task.getLocalProperty(name) if task else None for name in (_TIME, _SETTLED))
    if time is None or settled is None:
        raise AssertionError("the driver announces a micro-batch before it starts its job")
    return Announcement(int(time), None if settled == _NOTHING else int(settled))
