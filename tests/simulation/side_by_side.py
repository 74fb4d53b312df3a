# SPDX-License-Identifier: Apache-2.0
"""Tasks whose calls of endpoints are under way at the same time, in the time of the simulation."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from simulation.clocks import MachineClock


class _Loop(asyncio.BaseEventLoop):
    """An event loop that waits for nothing: it lets the time pass."""

    def __init__(self, clock: MachineClock) -> None:
        super().__init__()
        self._clock = clock
        self._selector = self
        self.set_exception_handler(lambda loop, context: None)  # what a crash leaves tells nobody

    def time(self) -> float:
        """Return the seconds since the start of the machine."""
        return self._clock.monotonic() / 1000

    def select(self, timeout: float | None) -> list[Any]:
        """Let the time pass until the next event."""
        if timeout is None:
            raise AssertionError("a call waits for nothing")
        self._clock.advance(math.ceil(timeout * 1000))
        return []

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def __del__(self) -> None:
        """It holds nothing that would have to be closed."""


class SideBySide:
    """The tasks of a driver.

    A task that awaits calls lets the others begin, and they end before it goes on.
    """

    def __init__(self, clock: MachineClock) -> None:
        self._loop = _Loop(clock)
        self._left: deque[Callable[[], None]] = deque()

    def run(self, tasks: Iterable[Callable[[], None]]) -> None:
        """Run tasks to their ends."""
        self._left.extend(tasks)
        _running.append(self)
        try:
            self._begin_others()
        finally:
            self._left.clear()
            _running.pop()

    def _begin_others(self) -> None:
        while self._left:
            self._left.popleft()()

    def await_all(self, calls: Sequence[Coroutine[Any, Any, Any]], limit: int) -> list[Any]:
        """Await calls of a task, side by side with those of others."""
        task = self._loop.create_task(_gathered(calls))
        try:
            self._begin_others()
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():  # the driver has crashed
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)
            for call in calls:
                call.close()


async def _gathered(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


_running: list[SideBySide] = []


def await_all(calls: Sequence[Coroutine[Any, Any, Any]], limit: int) -> list[Any]:
    """Take the place of the function of that name."""
    return _running[-1].await_all(calls, limit)
