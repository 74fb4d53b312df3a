# SPDX-License-Identifier: Apache-2.0
"""Measures how long the calls of each function take, to decide how many messages one call gets.

A call gets about as many messages as its function handles in ``REQUEST_TIME``. Each worker process
keeps its own measurements, from micro-batch to micro-batch.
"""

from __future__ import annotations

from datetime import timedelta

from statefun.sdk.bounded_map import BoundedMap

REQUEST_TIME = timedelta(seconds=1)
"""How long one call should take, with all of its messages."""
_WEIGHT = 0.25
"""The weight of the newest call in a moving average, from 0 to 1."""
_HABIT = 0.5
"""If this share of a function's calls have left their micro-batches, the next call is expected to leave."""
GLANCE = timedelta(milliseconds=5)
"""How long a micro-batch waits for a call that is expected to leave it."""
_MOST = 1_000_000
"""The largest number of messages that one call gets, however fast the function is."""


class Pace:
    """How long the calls of one function take, and how often they leave their micro-batches."""

    __slots__ = ("_leaving", "_seconds", "is_known")

    def __init__(self) -> None:
        self.is_known = False
        """Whether a call of the function has ended, so that its time per message is known."""
        self._seconds = 0.0
        """The average time per message, in seconds."""
        self._leaving = 0.0
        """The share of recent calls that have left their micro-batches, as a moving average from 0 to 1."""

    def took(self, seconds: float, messages: int, *, has_left: bool) -> None:
        """Add the measurement of a call that has ended.

        Args:
            seconds: how long the call took.
            messages: how many messages the call has handled, at least one.
            has_left: whether the call has left its micro-batch, and has taken at least as long as the
                ``detach_after`` of :meth:`patience`.
        """
        weight = _WEIGHT if self.is_known else 1.0
        self._seconds += weight * (seconds / messages - self._seconds)
        self.is_known = True
        self._leaving += _WEIGHT * (has_left - self._leaving)

    def left(self) -> None:
        """Count a call that leaves its micro-batch now; when the call ends, :meth:`took` counts it a second time."""
        self._leaving += _WEIGHT * (1 - self._leaving)

    @property
    def most(self) -> int:
        """How many messages a call of the function handles in ``REQUEST_TIME``; at least one."""
        if self._seconds * _MOST <= REQUEST_TIME.total_seconds():
            return _MOST
        return max(1, int(REQUEST_TIME.total_seconds() / self._seconds))

    def patience(self, detach_after: timedelta) -> timedelta:
        """Return how long a micro-batch waits for the next call before the call leaves it.

        Args:
            detach_after: how long the micro-batch waits if the function's calls mostly end in time.
        """
        return min(GLANCE, detach_after) if self._leaving >= _HABIT else detach_after


class Paces:
    """For each function that a worker process calls: how long its calls take, and how often they leave.

    The measurements of functions that were not called for long are dropped if there are too many: an endpoint
    ``namespace/*`` has a function of any name.
    """

    def __init__(self) -> None:
        self._paces: BoundedMap[str, Pace] = BoundedMap()

    def of(self, typename: str) -> Pace:
        """Return the pace of the function with a typename."""
        pace = self._paces.get(typename)
        if pace is None:
            pace = self._paces[typename] = Pace()
        return pace
