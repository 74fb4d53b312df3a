# SPDX-License-Identifier: Apache-2.0
"""The time, as timers and expirations see it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time, in whatever process it travels to."""

    def now(self) -> int:
        """Return the milliseconds since the epoch."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return the milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


def in_milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds, rounded up: nothing may come early.

    >>> in_milliseconds(timedelta(microseconds=1500))
    2
    """
    return -(-duration // timedelta(milliseconds=1))
