# SPDX-License-Identifier: Apache-2.0
"""Runs calls on the event loop of a worker process, and lets long calls leave their micro-batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from statefun.engine.call_limits import CallLimits, Company, wait_until_sent
from statefun.engine.call_paces import GLANCE, REQUEST_TIME, Paces
from statefun.engine.running_calls import AbandonedError, Begin, Left, RunningCall
from statefun.sdk.event_loop import keep, run_to_end, wait_for_kept
from statefun.sdk.invocation_batch import IsOver
from statefun.sdk.stateful_function import StatefulFunction

T = TypeVar("T")
_TICK = timedelta(milliseconds=10)
"""The interval at which the event loop checks which running calls take too long."""
_LEAST_TICKS = 2
"""How many intervals of ``_TICK`` must end during a call before the call may leave its micro-batch.

The first interval may end right after the call has begun. A call that never waits ends before the second."""
_PASSES = 8
"""After ``GLANCE``, a call gets this many passes of the event loop before it may leave its micro-batch.

On a busy loop, ``GLANCE`` may be over before the call has run. A call that never waits ends in fewer passes."""
_PATIENCE = timedelta(seconds=5)
"""How long a call that was lost before waits until it has left its micro-batch."""


class CallReporter(Protocol):
    """Reports to the driver about this worker process's long calls, and sends the driver their results."""

    @property
    def worker(self) -> str:
        """The name of this worker process in its reports to the driver."""

    def open(self) -> bool:
        """Return whether results can be sent to the driver; begin to connect to the driver if they cannot."""

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Send the result of a call; for the arguments see :meth:`CallRunner.report`."""

    def left(self, attempt: str) -> Future[bool]:
        """Return a future that is done when the driver knows whether the micro-batch that the call has left is staged.

        The future's result is False if the micro-batch is not staged with this call, or if the driver cannot be asked:
        then the result of the call does not count.
        """

    def begun(self, attempt: str) -> Future[None]:
        """Report that a call that was lost before runs now; return a future that is done when the report is sent."""

    def accompanied(self, attempt: str) -> Future[None]:
        """Report that a call has ended, or no longer runs alone: if it is lost from now on, the loss does not count.

        Return a future that is done when the report is sent.
        """

    def wait(self) -> None:
        """Wait until all reports are sent, or cannot be sent any more."""


class LeavingCalls:
    """Runs calls, and lets a call that takes too long leave its micro-batch.

    Args:
        reports: sends the results of calls that have left; it may be used in any thread.
        most: how many calls at most may go on after they have left their micro-batches.
        company: limits which calls of this process run at the same time; None for a new one.
    """

    def __init__(self, reports: CallReporter, most: int, company: Company | None = None) -> None:
        self.report = reports.report
        self._reports = reports
        self._paces = Paces()
        self._limits = CallLimits(company)
        self._most = most
        self._numbers = count(1)
        self._ticks = _Ticks()
        self._left: set[asyncio.Task[Any]] = set()
        """The calls that have left their micro-batches and have not ended."""

    @property
    def is_connected(self) -> bool:
        """Whether this process is connected to the driver to which it reports."""
        return bool(self._reports.worker)

    def run(self, calls: Sequence[Begin[T]], limit: int) -> list[T | BaseException | Left]:
        """Run calls until each has ended or has left the micro-batch; see :meth:`CallRunner.run`."""
        return run_to_end(lambda loop: _Batch(self, loop, calls, limit).ended())

    def most(self, name: str) -> int | None:
        """Return how many messages one call of a function should get; None until one of its calls has ended."""
        pace = self._paces.of(name)
        return pace.most if pace.is_known else None

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:
        """Record that a call of a function begins, and measure how long the call takes."""
        running.name, running.detach_after = name, detach_after
        # A call that has ended its process before must not do that in the middle of a micro-batch.
        patience = self._paces.of(name).patience(detach_after)
        running.patience = timedelta(0) if running.losses else patience
        running.begun = self._ticks.count
        self._ticks.watch(running)

    def started(self, running: RunningCall) -> IsOver | None:
        """Record that a call runs now; return a function that returns whether it has taken ``REQUEST_TIME``."""
        started = running.started = self._ticks.count
        return lambda: self._ticks.since(started) >= REQUEST_TIME

    def end(self, running: RunningCall, messages: int) -> None:
        """Record that a call has ended, and how long it took.

        Args:
            running: the call.
            messages: how many messages the call has handled; 0 if it has failed.
        """
        if running.begun is None:
            return
        self._ticks.forget(running)
        if messages:
            took = self._ticks.since(running.started)
            waited_for = self._ticks.since(running.begun)
            has_left = bool(running.attempt) and waited_for >= running.detach_after
            self._paces.of(running.name).took(took.total_seconds(), messages, has_left=has_left)

    def is_late(self, running: RunningCall) -> bool:
        """Return whether a call has run longer than its micro-batch waits for the call."""
        if running.begun is None or self._ticks.count - running.begun < _LEAST_TICKS:
            return False
        return self._ticks.since(running.begun) >= running.patience

    def is_expected_to_leave(self, running: RunningCall) -> bool:
        """Return whether a call has begun, and its micro-batch waits for it no longer than ``GLANCE``."""
        return running.begun is not None and running.patience <= GLANCE

    def place(
        self, function: StatefulFunction, running: RunningCall
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until a call may run; see :meth:`CallRunner.place`."""
        return (
            self._place_again(function, running)
            if running.losses
            else self._limits.place(function, is_alone=running.is_alone)
        )

    def plain_calls(self) -> AbstractContextManager[None]:
        """Return a context manager for plain calls; see :meth:`CallRunner.plain_calls`."""
        return self._limits.plain_calls()

    @asynccontextmanager
    async def _place_again(
        self, function: StatefulFunction, running: RunningCall
    ) -> AsyncIterator[None]:
        """Wait until a call that was lost earlier is allowed to run again; report to the driver that it runs."""
        await running.departure(_PATIENCE)
        name = running.attempt
        if not name:  # its micro-batch waits for it, and may be what it would wait for
            async with self._limits.place(function):
                yield
            return
        if not await asyncio.wrap_future(self._reports.left(name)):
            raise AbandonedError
        accompanied = partial(self._reports.accompanied, name)
        async with self._limits.place_again(function, running.losses, accompanied) as counts:
            if running.worker != self._reports.worker:
                raise AbandonedError  # the connection has ended meanwhile, and the driver lets the call be made again
            if not counts:
                yield
                return
            await wait_until_sent(self._reports.begun(name))
            try:
                yield
            finally:
                # Others begin only then: if they ended the process, the driver would take this call for the reason.
                await wait_until_sent(accompanied())

    def reporting_worker(self) -> str:
        """Return the name of this process in reports, if one more call may leave its micro-batch; else an empty text.

        A call may leave if fewer than ``most`` calls have left their micro-batches and still go on, and if this
        process can report to the driver.
        """
        may_leave = len(self._left) < self._most and self._reports.open()
        return self._reports.worker if may_leave else ""

    def wait(self) -> None:
        """Wait, before the process ends, until all long calls have ended and their results are sent."""
        wait_for_kept()
        self._reports.wait()

    def leave(self, task: asyncio.Task[Any], running: RunningCall, worker: str) -> Left:
        """Let a call leave its micro-batch and go on; return a ``Left`` with the name of the call.

        Args:
            task: the task of the call.
            running: the call.
            worker: the name of this process in reports.
        """
        keep(task)
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        self._paces.of(running.name).left()
        return running.leave(f"{worker}-{next(self._numbers)}", worker)


class _Ticks:
    """Measures how long calls take, by counting intervals of ``_TICK`` on the event loop.

    If the loop is busy, an interval ends late, but still counts as one interval. So a call does not seem to
    take long because other calls keep the processor busy.
    """

    def __init__(self) -> None:
        self.count = 0
        self._watched: set[RunningCall] = set()
        self._next: asyncio.TimerHandle | None = None

    def since(self, begun: int) -> timedelta:
        """Return the time since ``begun``, which is an earlier value of the counter of intervals, ``count``."""
        return (self.count - begun) * _TICK

    def watch(self, running: RunningCall) -> None:
        """Count intervals as long as a call runs, until :meth:`forget`."""
        self._watched.add(running)
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.call_later(_TICK.total_seconds(), self._tick, loop)

    def forget(self, running: RunningCall) -> None:
        """Stop watching a call: intervals are counted only while a call is watched."""
        self._watched.discard(running)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.count += 1
        self._next = None
        if self._watched:
            self._next = loop.call_later(_TICK.total_seconds(), self._tick, loop)


class _Batch(Generic[T]):
    """Runs calls of one micro-batch at the same time, until each has ended or has left the micro-batch."""

    def __init__(
        self,
        leaving: LeavingCalls,
        loop: asyncio.AbstractEventLoop,
        calls: Sequence[Begin[T]],
        limit: int,
    ) -> None:
        self._leaving = leaving
        self._loop = loop
        self._waiting = iter(enumerate(calls))
        self._limit = limit
        self._outcomes: list[Any] = [None] * len(calls)
        self._running: dict[asyncio.Task[T], tuple[int, RunningCall]] = {}
        self._end: asyncio.Future[None] = loop.create_future()
        self._next_look = loop.call_later(_TICK.total_seconds(), self._look)
        self._next_glance: asyncio.Handle | None = None

    async def ended(self) -> list[T | BaseException | Left]:
        """Run the calls; return for each call its result, its exception, or a ``Left`` if it has left."""
        self._begin_others()
        await self._end
        return self._outcomes

    def _begin_others(self) -> None:
        while len(self._running) < self._limit:
            following = next(self._waiting, None)
            if following is None:
                break
            index, begin = following
            running = RunningCall()
            task = self._loop.create_task(begin(running))
            self._running[task] = index, running
            task.add_done_callback(self._take)
            if self._next_glance is None:
                later = GLANCE.total_seconds()
                self._next_glance = self._loop.call_later(later, self._glance, _PASSES)
        if not self._running:
            self._next_look.cancel()
            if self._next_glance is not None:
                self._next_glance.cancel()
            if not self._end.done():
                self._end.set_result(None)

    def _take(self, task: asyncio.Task[T]) -> None:
        """Keep the result or exception of a call that has ended in this micro-batch, and begin other calls."""
        index, _ = self._running.pop(task)
        self._outcomes[index] = _outcome_of(task)
        self._begin_others()

    def _glance(self, passes: int) -> None:
        """Let calls that are expected to leave do so, after some passes of the event loop."""
        if passes:
            self._next_glance = self._loop.call_soon(self._glance, passes - 1)
            return
        self._next_glance = None
        self._let_leave(self._leaving.is_expected_to_leave)

    def _look(self) -> None:
        """Let calls that take too long leave the micro-batch, and check the others again after ``_TICK``."""
        self._next_look = self._loop.call_later(_TICK.total_seconds(), self._look)
        self._let_leave(self._leaving.is_late)

    def _let_leave(self, may_leave: Callable[[RunningCall], bool]) -> None:
        """Let the running calls for which ``may_leave`` returns True leave, and begin other calls."""
        for task, (index, running) in list(self._running.items()):
            # If a call has ended just now, its result is used in this micro-batch, and is not reported.
            leaves = may_leave(running) and not task.done()
            worker = self._leaving.reporting_worker() if leaves else ""
            if worker:
                # The callback would keep all results of the micro-batch in memory.
                task.remove_done_callback(self._take)
                self._outcomes[index] = self._leaving.leave(task, running, worker)
                del self._running[task]
        self._begin_others()


def _outcome_of(task: asyncio.Task[T]) -> T | BaseException:
    """Return the result of a task that has ended, or the exception with which the task has ended."""
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()
