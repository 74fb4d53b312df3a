# SPDX-License-Identifier: Apache-2.0
"""A clock for times in which other drivers may act: it runs while this machine sleeps."""

from __future__ import annotations

import time


def now() -> float:
    """Return the seconds of a clock that no one sets, and that runs while this machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
