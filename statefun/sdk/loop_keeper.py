# SPDX-License-Identifier: Apache-2.0
"""Runs the event loop of a worker process between micro-batches, so that long calls can go on.

While a micro-batch's functions are called, the worker's main thread runs the loop: in the main thread, alarms
can interrupt calls that block. Between micro-batches, a thread of the keeper runs the same loop, as long as
some calls go on. Only one of the two threads runs the loop at a time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

logger = logging.getLogger("statefun")

_BLOCKED = 10.0
"""For how many seconds a task may block the loop before a warning is logged."""


class LoopKeeper:
    """Runs the event loop in a thread of its own while the main thread does not, as long as tasks go on."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lock = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that the keeper has to run; None while the main thread runs it, or no task goes on."""
        self._is_running = False
        self._thread: threading.Thread | None = None

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Let a task go on to its end: the keeper runs the loop while the main thread does not."""
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        with self._lock:
            self._tasks.discard(task)
            if not self._tasks and self._is_running:
                self._loop = None
                task.get_loop().stop()
            self._lock.notify_all()

    def wait(self) -> None:
        """Wait until all tasks that were given to :meth:`keep` have ended."""
        with self._lock:
            self._lock.wait_for(lambda: not self._tasks)

    @contextmanager
    def away(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Stop the keeper's thread from running the loop, so that the present thread can run it meanwhile."""
        self._stop()
        try:
            yield
        finally:
            if self._tasks:
                self._start(loop)

    def _stop(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
            if not self._is_running:
                return
            if loop is not None:  # else the last task has stopped it, and it is about to return
                loop.call_soon_threadsafe(loop.stop)
            if not self._lock.wait_for(lambda: not self._is_running, timeout=_BLOCKED):
                logger.warning(
                    "a coroutine that goes on outside of micro-batches has blocked the event loop of "
                    "its worker for %s; no other coroutine function can be called there meanwhile",
                    timedelta(seconds=_BLOCKED),
                )
                self._lock.wait_for(lambda: not self._is_running)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._loop = loop
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._keep, name="statefun event loop", daemon=True
                )
                self._thread.start()
            self._lock.notify_all()

    def _keep(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._loop is not None)
                loop = self._loop
                self._is_running = True
            if loop is None:
                raise AssertionError
            # An exception of a user's coroutine that would end the process ends only its own call.
            with suppress(SystemExit, KeyboardInterrupt, RuntimeError):
                loop.run_forever()
            with self._lock:
                self._is_running = False
                if loop.is_closed():  # by users' code: its tasks never end
                    self._loop = None
                    self._tasks.clear()
                self._lock.notify_all()
