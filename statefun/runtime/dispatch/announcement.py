# SPDX-License-Identifier: Apache-2.0
"""Facts that the driver passes to the tasks of a micro-batch, as properties of their Spark job."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import SparkContext, TaskContext

from statefun.runtime.timers.clock import BatchClock, Clock

_TIME = "statefun.time"
_SETTLED = "statefun.settled"
_NOTHING = "nothing"


class Announcement(NamedTuple):
    """Facts about a micro-batch that only the driver knows."""

    time: int
    """The driver's time when the micro-batch began, in milliseconds since the epoch."""
    settled: int | None
    """The newest micro-batch up to which all messages were delivered before this one began.

    None while messages of an earlier run are on their way.
    """

    def clock(self, own: Clock) -> BatchClock:
        """Return the driver's clock as a task continues it; ``own`` is the worker's."""
        return BatchClock(own, self.time)


def announce(context: SparkContext, announcement: Announcement) -> None:
    """Pass the facts to the tasks of all later jobs of this thread."""
    time, settled = announcement
    context.setLocalProperty(_TIME, str(time))
    context.setLocalProperty(_SETTLED, _NOTHING if settled is None else str(settled))


def announced() -> Announcement:
    """Return the facts that the present task was given."""
    task = TaskContext.get()
    time, settled = (task.getLocalProperty(name) if task else None for name in (_TIME, _SETTLED))
    if time is None or settled is None:
        raise AssertionError("the driver announces a micro-batch before it starts its job")
    return Announcement(int(time), None if settled == _NOTHING else int(settled))
