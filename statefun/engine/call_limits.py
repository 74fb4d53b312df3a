# SPDX-License-Identifier: Apache-2.0
"""Delays calls of functions that limit how many calls run at a time, or begin within a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from statefun.sdk.limits import RateLimit
from statefun.sdk.stateful_function import StatefulFunction

_NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()


class CallLimits:
    """The limits of the functions that one worker process calls."""

    def __init__(self) -> None:
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        """The limits of calls that run at a time, by the function's typename."""
        self._rates: dict[str, _Rate] = {}
        """The limits of calls that begin within a time, by the shared resource or else the typename."""

    def place(self, function: StatefulFunction) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until the function's limits allow one more call."""
        if function.max_in_flight is None and function.rate_limit is None:
            return _NO_LIMIT
        return self._limited(function)

    @asynccontextmanager
    async def _limited(self, function: StatefulFunction) -> AsyncIterator[None]:
        name = str(function.typename)
        async with self._in_flight(name, function.max_in_flight):
            if function.rate_limit is not None:
                await self._rate(name, function.rate_limit).wait()
            yield

    def _in_flight(self, name: str, most: int | None) -> AbstractAsyncContextManager[None]:
        if most is None:
            return _NO_LIMIT
        semaphore = self._semaphores.get(name)
        if semaphore is None:
            semaphore = self._semaphores[name] = asyncio.Semaphore(most)
        return semaphore

    def _rate(self, name: str, limit: RateLimit) -> _Rate:
        key = name if limit.resource is None else f"resource {limit.resource}"
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = _Rate(limit)
        return rate


class _Rate:
    """Delays calls, so that they begin at a limited rate.

    After a pause, as many calls may begin at once as the limit allows within its time. This is the generic
    cell rate algorithm of ITU-T I.371, Annex A, in its form of virtual scheduling.
    """

    def __init__(self, limit: RateLimit) -> None:
        self._interval = limit.interval.total_seconds()
        self._burst = limit.per.total_seconds() - self._interval
        self._expected = 0.0
        """When the next call would begin at an even rate, in seconds of the event loop's clock."""

    async def wait(self) -> None:
        """Wait until the next call may begin."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._expected - self._burst)
        self._expected = max(now, self._expected) + self._interval
        if begin > now:
            await asyncio.sleep(begin - now)
