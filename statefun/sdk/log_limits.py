# SPDX-License-Identifier: Apache-2.0
"""Limits how often log lines of one kind are written, and counts those that are left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta


class LogLimit:
    """Lets a limited number of log lines of each kind pass in an interval, and counts the others.

    An interval of a kind begins with a line that passes. :meth:`passed` returns the count of an interval for the
    first line after it. Signal handlers may use a limit, too: a thread that holds its lock can take the lock again.

    Args:
        interval: the length of an interval.
        lines: how many lines of one kind pass in an interval.
        clock: returns the time in seconds, which never goes back.
    """

    def __init__(
        self,
        interval: timedelta,
        lines: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval.total_seconds()
        self._lines = lines
        self._clock = clock
        self._ends: dict[str, float] = {}
        """The end of the interval that began last, by kind."""
        self._passed: dict[str, int] = {}
        """The number of lines that have passed in this interval, by kind."""
        self._left_out: dict[str, int] = {}
        """The number of lines left out in this interval, by kind."""
        self._lock = threading.RLock()

    def passed(self, kind: str) -> int | None:
        """Return how many lines of a kind were left out before this one; None if this one is left out."""
        with self._lock:
            now = self._clock()
            if now >= self._ends.get(kind, now):
                self._ends[kind] = now + self._interval
                self._passed[kind] = 1
                return self._left_out.pop(kind, 0)
            if self._passed[kind] < self._lines:
                self._passed[kind] += 1
                return 0
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None

    def take_left_out(self) -> list[tuple[str, int]]:
        """Return each kind whose interval is over, with its number of lines left out; forget these numbers."""
        with self._lock:
            now = self._clock()
            kinds = [kind for kind in self._left_out if now >= self._ends[kind]]
            return [(kind, self._left_out.pop(kind)) for kind in kinds]
