# SPDX-License-Identifier: Apache-2.0
"""Runs coroutines of users' functions concurrently, on one event loop per worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from statefun.sdk.loop_keeper import LoopKeeper

T = TypeVar("T")


def await_all(calls: Sequence[Awaitable[T]], limit: int) -> list[T | BaseException]:
    """Await all calls, at most ``limit`` at a time; return the result of each, or its exception."""
    return run_to_end(lambda _: _side_by_side(calls, limit))


def run_to_end(begin: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end on the worker process's loop; return its result.

    Args:
        begin: returns the coroutine, given the loop.
    """
    return outside_of_loops(lambda: _run_to_end(begin))


def keep(task: asyncio.Task[Any]) -> None:
    """Let a task on the worker process's loop go on after :func:`run_to_end` has returned."""
    _keeper.keep(task)


def wait_for_kept() -> None:
    """Wait until all tasks that were given to :func:`keep` have ended; must not be called in the loop."""
    _keeper.wait()


def _run_to_end(begin: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, T]]) -> T:
    loop = _worker_loop()
    with _keeper.away(loop):
        task = loop.create_task(begin(loop))
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt, RuntimeError):
                # A task of users' code has tried to end the process, or has stopped the loop. Only the
                # call that awaits this task fails, so the loop runs again.
                if task.done() or loop.is_running() or loop.is_closed():
                    raise


def outside_of_loops(run: Callable[[], T]) -> T:
    """Call a function that runs an event loop; use another thread if this thread already runs a loop."""
    if not _is_in_loop():
        return run()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _worker_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the worker process, always the same one.

    A client, such as an HTTP session, works with one loop only. Functions can use a client in several
    calls, because all calls run on the same loop.
    """
    if not _loops or _loops[0].is_closed():
        _loops[:] = [asyncio.new_event_loop()]
    return _loops[0]


_loops: list[asyncio.AbstractEventLoop] = []
"""The worker process's loop, once it exists; it is not Python's current loop, which any code may close."""
_keeper = LoopKeeper()
"""Runs the loop between calls of :func:`run_to_end`, as long as tasks go on."""


async def _side_by_side(calls: Sequence[Awaitable[T]], limit: int) -> list[T | BaseException]:
    semaphore = asyncio.Semaphore(limit)

    async def bounded(call: Awaitable[T]) -> T:
        async with semaphore:
            return await call

    return await asyncio.gather(*map(bounded, calls), return_exceptions=True)
