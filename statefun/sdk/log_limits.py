# SPDX-License-Identifier: Apache-2.0
"""Limits how often log lines of one kind are written, and counts those that are left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import attrs

_MOST_KINDS = 10_000
"""With more kinds of lines than this, those are forgotten whose interval is over."""


@attrs.define
class _Interval:
    """The lines of one kind in an interval, which begins with a line that passes."""

    end: float
    passed: int = 1
    left_out: int = 0


class LogLimit:
    """Lets a limited number of log lines of each kind pass in an interval, and counts the others.

    An interval of a kind begins with a line that passes. :meth:`passed` returns the count of an interval for the
    first line after it; among very many kinds, the counts of old intervals are lost. Signal handlers may use a limit,
    too: a thread that holds its lock can take the lock again.

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
        self._seconds = interval.total_seconds()
        self._lines = lines
        self._clock = clock
        self._intervals: dict[str, _Interval] = {}
        """The interval that began last, by kind."""
        self._most = _MOST_KINDS
        """The number of kinds with which old intervals are looked for."""
        self._lock = threading.RLock()

    def passed(self, kind: str) -> int | None:
        """Return how many lines of a kind were left out before this one; None if this one is left out."""
        with self._lock:
            now = self._clock()
            interval = self._intervals.get(kind)
            if interval is None or now >= interval.end:
                if len(self._intervals) >= self._most:
                    self._forget(now)
                self._intervals[kind] = _Interval(now + self._seconds)
                return 0 if interval is None else interval.left_out
            if interval.passed < self._lines:
                interval.passed += 1
                return 0
            interval.left_out += 1
            return None

    def _forget(self, now: float) -> None:
        """Forget the intervals that are over."""
        intervals = list(self._intervals.items())  # one that a signal handler adds now is lost
        self._intervals = {kind: each for kind, each in intervals if now < each.end}
        self._most = max(_MOST_KINDS, 2 * len(self._intervals))

    def take_left_out(self, *, at_once: bool = False) -> list[tuple[str, int]]:
        """Return each kind whose interval is over, with its number of lines left out; forget these numbers.

        Args:
            at_once: whether to return also kinds whose interval is not over.
        """
        with self._lock:
            now = self._clock()
            taken = []
            for kind, interval in list(self._intervals.items()):
                if interval.left_out and (at_once or now >= interval.end):
                    taken.append((kind, interval.left_out))
                    interval.left_out = 0
            return taken
