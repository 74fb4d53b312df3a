# SPDX-License-Identifier: Apache-2.0
"""The driver's time, by which delayed messages become due and values expire."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Protocol

logger = logging.getLogger("statefun")

_LAG = 3_600_000
"""The longest time between the starts of a micro-batch and one of its tasks, in milliseconds.

If a worker's clock shows a longer time, this time is used instead, as the clock is probably wrong. A task
that really starts later computes due times that are too early. If a worker's clock is ahead of the driver's
by less than this time, values expire too early by the difference of the clocks.
"""
_JUMP = 10_000
"""The difference in milliseconds between a clock and a stopwatch that is logged as a jump of the clock."""


class Clock(Protocol):
    """Gives the present time, in the driver as well as in the workers that the object is sent to."""

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
    """The driver's time in a task of a micro-batch.

    The worker's own clock only measures how much later than the micro-batch the task has started; a result
    below zero or above an hour is replaced by that bound. From then on, a monotonic clock measures the time.

    Args:
        clock: the worker's clock.
        begun: the driver's time when the micro-batch began, in milliseconds since the epoch.
    """

    def __init__(self, clock: Clock, begun: int) -> None:
        self.begun = begun
        """When the micro-batch began: the same for all of its tasks, regardless of their clocks."""
        self._clock = clock
        self._difference = min(max(clock.now(), begun), begun + _LAG) - clock.monotonic()

    def now(self) -> int:
        """Return the milliseconds since the epoch."""
        return self._clock.monotonic() + self._difference

    def monotonic(self) -> int:
        """Return the milliseconds since a fixed but unknown moment."""
        return self._clock.monotonic()


class JumpLog:
    """Detects when a clock jumps, and logs each jump once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference = clock.now() - clock.monotonic()

    def look(self) -> None:
        """Compare the clock with a stopwatch that has run since the last comparison; log a jump."""
        difference = self._clock.now() - self._clock.monotonic()
        jump, self._difference = difference - self._difference, difference
        if abs(jump) >= _JUMP:
            logger.warning(
                "the clock has jumped %s by %s (it was set, or the machine was suspended); "
                "delayed messages and expirations follow the new time",
                "ahead" if jump > 0 else "back",
                timedelta(seconds=abs(jump) // 1000),
            )
