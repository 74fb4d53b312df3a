# SPDX-License-Identifier: Apache-2.0
"""A clock that also runs while this machine sleeps, since drivers on other machines may act meanwhile."""

from __future__ import annotations

import time


def now() -> float:
    """Return the seconds of a clock that nobody can set, and that also runs while this machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
