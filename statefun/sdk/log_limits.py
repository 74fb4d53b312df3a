# SPDX-License-Identifier: Apache-2.0
"""Limits how often log lines of one kind are written, and counts those that are left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta


class LogLimit:
    """Lets one log line of each kind pass in an interval.

    The first line of a kind passes at once. The next one that passes has the count of those left out between
    the two. Signal handlers may use a limit, too, as its lock admits the same thread again.

    Args:
        interval: the shortest time between two lines of one kind.
        clock: gives the time in seconds, monotonic.
    """

    def __init__(self, interval: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval.total_seconds()
        self._clock = clock
        self._next: dict[str, float] = {}
        """The earliest time of the next line, by kind."""
        self._left_out: dict[str, int] = {}
        """The number of lines left out since the last one that has passed, by kind."""
        self._lock = threading.RLock()

    def passed(self, kind: str) -> int | None:
        """Return how many lines of a kind were left out before this one; None if this one is left out."""
        with self._lock:
            now = self._clock()
            if now < self._next.get(kind, now):
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return None
            self._next[kind] = now + self._interval
            return self._left_out.pop(kind, 0)
