# SPDX-License-Identifier: Apache-2.0
"""A clock that goes on while this machine sleeps: it measures durations during which other drivers may act."""

from __future__ import annotations

import time


def now() -> float:
    """Return the seconds of a clock that no one sets, and that goes on while this machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
