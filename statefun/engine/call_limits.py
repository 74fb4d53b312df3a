# SPDX-License-Identifier: Apache-2.0
"""Waits until a function may be called: limits of calls at a time, and of calls within a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from statefun.sdk.limits import RateLimit
from statefun.sdk.stateful_function import StatefulFunction

_NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()


class CallLimits:
    """The limits of the functions of one process."""

    def __init__(self) -> None:
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        """The limits of calls at a time, by typename."""
        self._rates: dict[str, _Rate] = {}
        """The limits of calls within a time, by resource or typename."""

    def place(self, function: StatefulFunction) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until one more call of a function may be made."""
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
    """Lets calls begin at a limited rate; a burst may have as many as the limit has within its time.

    The generic cell rate algorithm: ITU-T I.371, Annex A, in its form of virtual scheduling.
    """

    def __init__(self, limit: RateLimit) -> None:
        self._interval = limit.interval.total_seconds()
        self._burst = limit.per.total_seconds() - self._interval
        self._expected = 0.0
        """When the next call is expected if calls come evenly, in seconds of the loop."""

    async def wait(self) -> None:
        """Wait until the next call may begin."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._expected - self._burst)
        self._expected = max(now, self._expected) + self._interval
        if begin > now:
            await asyncio.sleep(begin - now)
