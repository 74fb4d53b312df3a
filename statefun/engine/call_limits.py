# SPDX-License-Identifier: Apache-2.0
"""Limits how many calls run at a time and how fast they begin, and finds calls that crash a process."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from datetime import timedelta
from functools import cache
from pathlib import Path

from statefun.sdk.limits import RateLimit
from statefun.sdk.stateful_function import StatefulFunction

_NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()
GROUP_SIZES = (256, 16, 1)
"""How many calls that were lost once, twice and three times may run at a time in a process.

A call is lost if its process ends before the call does. Any call of the process may be the reason. So after
each loss, the call runs together with fewer calls that were lost as often, and at last alone: if the process
ends again, this call is the reason.
"""
MOST_ALONE = timedelta(minutes=1)
"""How long a call may run alone, and how long it may wait for that; then other calls begin.

If the process ends after that, this does not count as a loss of the call."""
_BREAK = timedelta(milliseconds=10)
"""The pause between two calls that run alone, in which other calls begin."""
_LONGEST = 2 * MOST_ALONE + timedelta(seconds=5)
"""How long a process has the turn to run a call alone, even if its event loop is blocked and cannot end the turn.

Otherwise the turn ends earlier: a call waits at most ``MOST_ALONE`` until others have ended, and then runs alone for at
most as long."""
_SENT = timedelta(seconds=5)
"""How long calls wait until a report to the driver is sent."""
_LOOK = timedelta(milliseconds=50)
"""The time between two checks whether no call of another process runs alone."""


@cache
def shared_turn() -> int:
    """Return the descriptor of a file whose lock is held by the process that may run a call alone.

    A process that makes the file before it forks shares it with its children. So only one worker in a container at a
    time runs a call alone: if the whole container ends, only this call can be the reason. The file has no name, and a
    lock ends with its process. On Linux the file is in memory, as a worker may have no temporary folder in which it
    can write.
    """
    if sys.platform == "linux":
        return os.memfd_create("statefun turn")
    descriptor, path = tempfile.mkstemp()
    Path(path).unlink()
    return descriptor


async def wait_until_sent(report: Future[None]) -> None:
    """Wait until a report to the driver is sent, but no longer than ``_SENT``."""
    if not report.done():
        await asyncio.wait([asyncio.wrap_future(report)], timeout=_SENT.total_seconds())


class CallLimits:
    """The limits of one worker process: how many calls run at a time, and how fast calls begin.

    Args:
        company: limits which calls run at the same time; all CallLimits of a process share it. None for a new one.
    """

    def __init__(self, company: Company | None = None) -> None:
        self._company = company or Company()
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        """The limits of how many calls of a function run at a time, by the function's typename."""
        self._rates: dict[str, _Rate] = {}
        """The limits of how fast calls begin, by the shared resource, or else the function's typename."""

    def place(
        self, function: StatefulFunction, *, is_alone: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until one more call of a function may run in this process.

        Args:
            function: the function to call.
            is_alone: whether the call begins at once, since its micro-batch waits for it, and its endpoint is called
                for no other address. It needs no place among the calls that run at a time. It counts for the limit of
                the rate, so that later calls wait.
        """
        # A call of a function behind an endpoint runs no code of users in this process.
        company = None if function.transport is not None else self._company
        if function.max_in_flight is None and function.rate_limit is None:
            return company or _NO_LIMIT
        return self._limited(function, company, is_alone=is_alone)

    def plain_calls(self) -> AbstractContextManager[None]:
        """Return a context manager that waits until plain functions may run; see :meth:`Company.plain_calls`."""
        return self._company.plain_calls()

    @asynccontextmanager
    async def place_again(
        self, function: StatefulFunction, losses: int, accompanied: Callable[[], Future[None]]
    ) -> AsyncIterator[bool]:
        """Wait until a call that was lost may run again: the more often it was lost, the fewer other calls run with it.

        Args:
            function: the function to call.
            losses: how many times in a row the call was lost; see ``GROUP_SIZES``.
            accompanied: is called when the call has run alone for ``MOST_ALONE``, and in another thread if the call
                blocks the event loop. Other calls begin when the returned future is done.

        Yields:
            Whether the call counts as the reason if the process ends now.
        """
        name = str(function.typename)
        async with self._in_flight(name, function.max_in_flight):
            if function.rate_limit is not None:
                await self._rate(name, function.rate_limit).wait()
            async with self._company.again(losses, accompanied) as counts:
                yield counts

    @asynccontextmanager
    async def _limited(
        self, function: StatefulFunction, company: Company | None, *, is_alone: bool
    ) -> AsyncIterator[None]:
        name = str(function.typename)
        async with self._in_flight(name, None if is_alone else function.max_in_flight):
            while True:
                if company is not None:
                    await company.opened()
                if function.rate_limit is not None:
                    rate = self._rate(name, function.rate_limit)
                    if is_alone:
                        rate.take()
                    else:
                        await rate.wait()
                if company is None or company.is_open:  # else another call has begun to run alone
                    break
            async with company or _NO_LIMIT:
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
        self.take()
        if begin > now:
            await asyncio.sleep(begin - now)

    def take(self) -> None:
        """Count a call that begins at once: calls after it begin later."""
        now = asyncio.get_running_loop().time()
        self._expected = max(now, self._expected) + self._interval


class _Turn:
    """The turn to run a call alone; of all processes that share a file, one call at a time has the turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._changing = threading.Lock()
        self._timer: threading.Timer | None = None
        """Ends the present turn if the event loop is blocked; None if that has happened, or the process has no turn."""

    @property
    def is_held(self) -> bool:
        """Whether this process still has the turn that it acquired last."""
        return self._timer is not None

    async def acquire(self, accompanied: Callable[[], Future[None]]) -> None:
        """Wait for the turn.

        Args:
            accompanied: is called, in another thread, if the turn has lasted for ``_LONGEST``. The turn ends when the
                returned future is done.
        """
        await self._lock.acquire()
        try:
            while not self._try_file():  # noqa: ASYNC110 - a lock of a file sets no event
                await asyncio.sleep(_LOOK.total_seconds())
            timer = threading.Timer(_LONGEST.total_seconds(), self._expire, [accompanied])
            timer.daemon = True
            self._timer = timer
            timer.start()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """End the turn."""
        with self._changing:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
                fcntl.lockf(shared_turn(), fcntl.LOCK_UN)
        self._lock.release()

    def _expire(self, accompanied: Callable[[], Future[None]]) -> None:
        """End the turn, in a timer's thread, although the call goes on: other processes may run calls alone then."""
        with suppress(FutureTimeoutError):
            accompanied().result(_SENT.total_seconds())
        with self._changing:
            if self._timer is threading.current_thread():  # else the turn has just ended
                self._timer = None
                fcntl.lockf(shared_turn(), fcntl.LOCK_UN)

    @staticmethod
    def _try_file() -> bool:
        try:
            fcntl.lockf(shared_turn(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # as POSIX has it, either of them
            return False
        return True


class Company(AbstractAsyncContextManager[None]):
    """Decides which calls run at the same time in a process, to find a call that ends the process.

    It is a context manager for a call: entering it waits while another call runs alone.
    """

    def __init__(self) -> None:
        *sizes, _ = GROUP_SIZES
        self._groups = [asyncio.Semaphore(size) for size in sizes]
        self._running = 0
        """How many calls run now, not counting a call that runs alone."""
        self._open = asyncio.Event()
        """Is set unless a call runs alone, or waits for the end of all other calls."""
        self._open.set()
        self._empty = asyncio.Event()
        """Is set while ``_running`` is 0."""
        self._empty.set()
        self._turn = _Turn()
        """The turn of the call that runs alone."""
        self._plain = threading.Condition()
        self._plain_tasks = 0
        """How many threads run plain functions now."""
        self._holds_plain = False
        """Whether plain functions have to wait, since a call runs alone, or waits for the end of all others."""

    @contextmanager
    def plain_calls(self) -> Iterator[None]:
        """Wait until no call runs alone; then let this thread run plain functions during the ``with`` block.

        If a plain function ended the process while a call ran alone, the driver would blame that call.
        """
        with self._plain:
            while self._holds_plain and self._turn.is_held:
                self._plain.wait(_LOOK.total_seconds())
            self._plain_tasks += 1
        try:
            yield
        finally:
            with self._plain:
                self._plain_tasks -= 1

    def _hold_plain(self, *, holds: bool) -> None:
        with self._plain:
            self._holds_plain = holds
            self._plain.notify_all()

    @property
    def is_open(self) -> bool:
        """Whether a call may begin, as no call runs alone."""
        return self._open.is_set()

    async def opened(self) -> None:
        """Wait until no call runs alone, so that another call may begin."""
        await self._open.wait()

    async def __aenter__(self) -> None:
        while not self._open.is_set():
            await self._open.wait()
        self._begin()

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _begin(self) -> None:
        self._running += 1
        self._empty.clear()

    def _end(self) -> None:
        self._running -= 1
        if not self._running:
            self._empty.set()

    @asynccontextmanager
    async def again(
        self, losses: int, accompanied: Callable[[], Future[None]]
    ) -> AsyncIterator[bool]:
        """Wait until a call that was lost may run again; see :meth:`CallLimits.place_again`."""
        if losses <= len(self._groups):
            async with self._groups[losses - 1], self:
                yield True
            return
        async with AsyncExitStack() as stack:
            await self._turn.acquire(accompanied)
            turn = ExitStack()
            turn.callback(self._turn.release)
            stack.callback(turn.close)
            await asyncio.sleep(_BREAK.total_seconds())
            turn.callback(self._open.set)
            turn.callback(self._hold_plain, holds=False)
            self._hold_plain(holds=True)
            is_alone = await self._emptied() and self._turn.is_held
            if is_alone:

                async def let_others_begin() -> None:
                    """Let other calls begin when this call has run alone for long enough."""
                    await asyncio.sleep(MOST_ALONE.total_seconds())
                    await wait_until_sent(accompanied())
                    turn.close()
                    self._begin()
                    stack.callback(self._end)

                stack.callback(asyncio.ensure_future(let_others_begin()).cancel)
            else:
                turn.close()
                await stack.enter_async_context(self)
            yield is_alone

    async def _emptied(self) -> bool:
        """Wait until nothing else runs in the process; return False if something still runs after ``MOST_ALONE``."""
        try:
            await asyncio.wait_for(self._ended(), MOST_ALONE.total_seconds())
        except asyncio.TimeoutError:  # calls of hours must not hold up all others
            return False
        return True

    async def _ended(self) -> None:
        # A task with plain functions may wait for calls that have not begun: these begin until it has ended.
        while self._plain_tasks:  # noqa: ASYNC110 - other threads set no event of the loop
            await asyncio.sleep(_LOOK.total_seconds())
        self._open.clear()
        await self._empty.wait()
