# SPDX-License-Identifier: Apache-2.0
"""The time, as timers and expirations see it: that of the driver."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Protocol

logger = logging.getLogger("statefun")

_MILLISECOND = timedelta(milliseconds=1)
_LAG = 3_600_000
"""Milliseconds that a task may begin later than its micro-batch, by the clock of its worker.

A task that begins later still would take its timers for due too early; a worker's clock that is
ahead by less makes values expire early by as much.
"""
_JUMP = 10_000
"""Milliseconds by which a clock and a stopwatch differ when the clock has jumped."""


class Clock(Protocol):
    """Tells the time, in whatever process it travels to."""

    def now(self) -> int:
        """Return the milliseconds since the epoch; they jump when somebody sets the clock."""

    def monotonic(self) -> int:
        """Return the milliseconds since a fixed but unknown moment; they never jump."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return the milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Return the milliseconds since a fixed but unknown moment."""
        return time.monotonic_ns() // 1_000_000


class BatchClock:
    """The driver's time, as a task of a micro-batch continues it.

    The worker's own clock only says how long the task had to wait for its start, and is believed
    within bounds: that is none at the least and an hour at most. From then on a stopwatch
    measures.

    Args:
        clock: the worker's own.
        begun: when the micro-batch began by the driver's clock, in milliseconds since the epoch.
    """

    def __init__(self, clock: Clock, begun: int) -> None:
        self.begun = begun
        """When the micro-batch began: the same for all of its tasks, whatever their clocks."""
        self._clock = clock
        self._difference = min(max(clock.now(), begun), begun + _LAG) - clock.monotonic()

    def now(self) -> int:
        """Return the milliseconds since the epoch."""
        return self._clock.monotonic() + self._difference

    def monotonic(self) -> int:
        """Return the milliseconds since a fixed but unknown moment."""
        return self._clock.monotonic()


class JumpLog:
    """Notices when a clock jumps, and logs each jump once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference = clock.now() - clock.monotonic()

    def look(self) -> None:
        """Compare the clock with a stopwatch that has run since the last look."""
        difference = self._clock.now() - self._clock.monotonic()
        jump, self._difference = difference - self._difference, difference
        if abs(jump) >= _JUMP:
            logger.warning(
                "the clock has jumped %s by %s (it was set, or the machine was suspended); "
                "delayed messages and expirations follow it",
                "ahead" if jump > 0 else "back",
                timedelta(seconds=abs(jump) // 1000),
            )


def in_milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds, rounded up: nothing may come early.

    >>> in_milliseconds(timedelta(microseconds=1500))
    2
    """
    whole, rest = divmod(duration, _MILLISECOND)
    return whole + bool(rest)
