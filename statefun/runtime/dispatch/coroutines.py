# SPDX-License-Identifier: Apache-2.0
"""Running coroutines of users' functions side by side, on one event loop per worker process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def await_all(calls: Sequence[Awaitable[T]], limit: int) -> list[T | BaseException]:
    """Await all calls, at most ``limit`` at a time; one that fails leaves the others alone."""
    return _event_loop().run_until_complete(_side_by_side(calls, limit))


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the worker process's loop: what user code ties to it lives as long as it does."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


async def _side_by_side(calls: Sequence[Awaitable[T]], limit: int) -> list[T | BaseException]:
    semaphore = asyncio.Semaphore(limit)

    async def bounded(call: Awaitable[T]) -> T:
        async with semaphore:
            return await call

    return await asyncio.gather(*map(bounded, calls), return_exceptions=True)
