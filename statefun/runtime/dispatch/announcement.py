# SPDX-License-Identifier: Apache-2.0
"""Facts that the driver passes to the tasks of a micro-batch, as properties of their Spark job."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import SparkContext, TaskContext

from statefun.runtime.timers.clock import BatchClock, Clock

_TIME = "statefun.time"
_DELIVERED_UP_TO = "statefun.delivered-up-to"
_NOTHING = "nothing"


class Announcement(NamedTuple):
    """Facts about a micro-batch that only the driver knows."""

    time: int
    """The driver's time when the micro-batch began, in milliseconds since the epoch."""
    delivered_up_to: int | None
    """The newest micro-batch up to which all messages were delivered before this one began.

    None while messages of an earlier run are on their way.
    """

    def clock(self, own: Clock) -> BatchClock:
        """Return the driver's clock as a task continues it; ``own`` is the worker's."""
        return BatchClock(own, self.time)


def announce(context: SparkContext, announcement: Announcement) -> None:
    """Pass the facts to the tasks of all later jobs of this thread."""
    time, delivered_up_to = announcement
    context.setLocalProperty(_TIME, str(time))
    context.setLocalProperty(
        _DELIVERED_UP_TO, _NOTHING if delivered_up_to is None else str(delivered_up_to)
    )


def announced() -> Announcement:
    """Return the facts that the present task was given."""
    task = TaskContext.get()
    time, delivered_up_to = (
        task.getLocalProperty(name) if task else None for name in (_TIME, _DELIVERED_UP_TO)
    )
    if time is None or delivered_up_to is None:
        raise AssertionError("the driver announces a micro-batch before it starts its job")
    return Announcement(int(time), None if delivered_up_to == _NOTHING else int(delivered_up_to))
