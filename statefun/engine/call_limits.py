# SPDX-License-Identifier: Apache-2.0
"""Limits how many calls run at a time and how fast they begin, and finds calls that crash a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from statefun.sdk.limits import RateLimit
from statefun.sdk.stateful_function import StatefulFunction

_NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()
GROUP_SIZES = (256, 16, 1)
"""How many calls that were lost once, twice and three times may run at a time in a process.

A call is lost if its process ends before the call does. Any call of the process may be the reason. So after
each loss, the call runs together with fewer calls that were lost as often, and at last alone: if the process
ends again, this call is the reason.
"""


class CallLimits:
    """The limits of one worker process: how many calls run at a time, and how fast calls begin."""

    def __init__(self) -> None:
        self._company = _Company()
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        """The limits of how many calls of a function run at a time, by the function's typename."""
        self._rates: dict[str, _Rate] = {}
        """The limits of how fast calls begin, by the shared resource, or else the function's typename."""

    def place(
        self, function: StatefulFunction, losses: int = 0
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until one more call of a function may run in this process.

        Args:
            function: the function to call.
            losses: how many times in a row the call was lost; see ``GROUP_SIZES``.
        """
        # A call of a function behind an endpoint runs no code of users in this process.
        company = _NO_LIMIT if function.transport is not None else self._company.of(losses)
        if function.max_in_flight is None and function.rate_limit is None:
            return company
        return self._limited(function, company)

    @asynccontextmanager
    async def _limited(
        self, function: StatefulFunction, company: AbstractAsyncContextManager[None]
    ) -> AsyncIterator[None]:
        name = str(function.typename)
        async with self._in_flight(name, function.max_in_flight):
            if function.rate_limit is not None:
                await self._rate(name, function.rate_limit).wait()
            async with company:
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

    After a pause, as many calls may begin at once as the limit allows per period. This is the generic
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


class _Company(AbstractAsyncContextManager[None]):
    """Decides which calls may run side by side, to find the call that crashes the process.

    As a context manager, it begins a call only when no other call runs alone, or waits to run alone.
    """

    def __init__(self) -> None:
        *sizes, _ = GROUP_SIZES
        self._groups = [asyncio.Semaphore(size) for size in sizes]
        self._running = 0
        """How many calls run now, not counting a call that runs alone."""
        self._alone = 0
        """How many calls wait to run alone, or run alone."""
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()
        """The lock of the call that runs alone, or that will run alone when all other calls have ended."""

    def of(self, losses: int) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until a call may run.

        Args:
            losses: how many times in a row the call was lost. A call that was lost often waits until few
                other calls like it run, or until no other call runs at all; see ``GROUP_SIZES``.
        """
        if not losses:
            return self
        return self._by_itself() if losses > len(self._groups) else self._in_group(losses)

    async def __aenter__(self) -> None:
        if self._alone:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._alone)
        self._running += 1

    async def __aexit__(self, *_: object) -> None:
        self._running -= 1
        if self._alone:
            async with self._changed:
                self._changed.notify_all()

    @asynccontextmanager
    async def _in_group(self, losses: int) -> AsyncIterator[None]:
        async with self._groups[losses - 1], self:
            yield

    @asynccontextmanager
    async def _by_itself(self) -> AsyncIterator[None]:
        self._alone += 1
        try:
            async with self._turn:
                async with self._changed:
                    await self._changed.wait_for(lambda: not self._running)
                yield
        finally:
            self._alone -= 1
            async with self._changed:
                self._changed.notify_all()
