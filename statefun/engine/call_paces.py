# SPDX-License-Identifier: Apache-2.0
"""How long calls take, by function: a request gets as many messages as fit into a time.

What is learnt is kept in each worker process, from micro-batch to micro-batch.
"""

from __future__ import annotations

from datetime import timedelta

REQUEST_TIME = timedelta(seconds=1)
"""The time that the messages of one call should take together."""
_WEIGHT = 0.25
"""How much the newest call counts in an average."""
_HABIT = 0.5
"""The share of calls that have left from which on the next one is expected to leave."""
_GLANCE = timedelta(milliseconds=10)
"""How long a micro-batch waits for a call that is expected to leave."""
_MOST = 1_000_000


class Pace:
    """How long the calls of a function take."""

    __slots__ = ("_leaving", "_seconds", "is_known")

    def __init__(self) -> None:
        self.is_known = False
        """Whether a call has ended."""
        self._seconds = 0.0
        """The average time of a message."""
        self._leaving = 0.0
        """The average of calls that have left (1) and of those that have not (0)."""

    def took(self, seconds: float, messages: int, *, has_left: bool) -> None:
        """Count a call that has ended.

        Args:
            seconds: how long it took.
            messages: how many messages it has handled, one at least.
            has_left: whether it has left its micro-batch, and would have if that had waited as long as
                for a function that mostly answers in time.
        """
        weight = _WEIGHT if self.is_known else 1.0
        self._seconds += weight * (seconds / messages - self._seconds)
        self.is_known = True
        self._leaving += _WEIGHT * (has_left - self._leaving)

    def left(self) -> None:
        """Count a call that leaves its micro-batch, long before it ends."""
        self._leaving += _WEIGHT * (1 - self._leaving)

    @property
    def most(self) -> int:
        """How many messages fit into a call: one at least."""
        if self._seconds * _MOST <= REQUEST_TIME.total_seconds():
            return _MOST
        return max(1, int(REQUEST_TIME.total_seconds() / self._seconds))

    def patience(self, detach_after: timedelta) -> timedelta:
        """Return how long a micro-batch waits for the next call.

        Args:
            detach_after: how long it waits for a call of a function that mostly answers in time.
        """
        return min(_GLANCE, detach_after) if self._leaving >= _HABIT else detach_after


class Paces:
    """How long calls take, by function."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}

    def of(self, typename: str) -> Pace:
        """Return the pace of a function."""
        pace = self._paces.get(typename)
        if pace is None:
            pace = self._paces[typename] = Pace()
        return pace
