# SPDX-License-Identifier: Apache-2.0
"""Runs coroutines of users' functions concurrently, on one event loop per worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def await_all(calls: Sequence[Awaitable[T]], limit: int) -> list[T | BaseException]:
    """Await all calls, at most ``limit`` at a time; a failed call does not disturb the others."""
    return outside_of_loops(lambda: _await_all(calls, limit))


def _await_all(calls: Sequence[Awaitable[T]], limit: int) -> list[T | BaseException]:
    loop = _event_loop()
    task = loop.create_task(_side_by_side(calls, limit))
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError):
            # A task of users' code has asked for the end of the process, or stopped the loop:
            # this concerns only the call that awaits the task, and not the loop.
            if task.done() or loop.is_running() or loop.is_closed():
                raise


def outside_of_loops(run: Callable[[], T]) -> T:
    """Call a function that runs an event loop: in another thread, if this one runs a loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the worker process's loop; users' clients can stay with it."""
    if not _loops or _loops[0].is_closed():
        _loops[:] = [asyncio.new_event_loop()]
    return _loops[0]


_loops: list[asyncio.AbstractEventLoop] = []
"""The worker process's loop; it is not Python's current loop, which any code may close."""


async def _side_by_side(calls: Sequence[Awaitable[T]], limit: int) -> list[T | BaseException]:
    semaphore = asyncio.Semaphore(limit)

    async def bounded(call: Awaitable[T]) -> T:
        async with semaphore:
            return await call

    return await asyncio.gather(*map(bounded, calls), return_exceptions=True)
