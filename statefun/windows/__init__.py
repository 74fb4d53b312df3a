# SPDX-License-Identifier: Apache-2.0
"""Windows: records of one key are collected by event time, and a window closes when all of its records have come.

The public names are here. The package is built only on state and on timers in event time.
"""

from __future__ import annotations

from statefun.windows.window_context import TimeWindow, WindowContext
from statefun.windows.window_functions import WindowedFunction, windowed
from statefun.windows.window_kinds import Counted, Hopping, Session, Sliding, Tumbling
from statefun.windows.window_state import Window

__all__ = [
    "Counted",
    "Hopping",
    "Session",
    "Sliding",
    "TimeWindow",
    "Tumbling",
    "Window",
    "WindowContext",
    "WindowedFunction",
    "windowed",
]
