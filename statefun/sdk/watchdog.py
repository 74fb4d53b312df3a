# SPDX-License-Identifier: Apache-2.0
"""Ends calls of coroutine functions that take too long, with one watchdog per event loop.

The watchdog looks at all running calls at intervals. Only time in which the loop could run a call
counts: an interval that ends late, since other calls keep the loop busy, counts with its planned
length.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from datetime import timedelta
from types import coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from statefun.sdk.address import Address
from statefun.sdk.deadline import Alarm, CallTimeoutError, HeldTimer

_GRACE = 1.0
"""The longest time, in seconds, that a cancelled coroutine may take to end."""
_LOOKS = 8
"""How many times the watchdog looks at a call with a short timeout before the timeout is over."""
_LONGEST_INTERVAL = 1.0
"""The longest time between two looks at a call, in seconds."""
_SHORTEST_INTERVAL = 0.001
"""The shortest time between two looks at a call, in seconds: more looks would slow the loop down."""

T = TypeVar("T")
_alarm: ContextVar[Alarm | None] = ContextVar("statefun_alarm", default=None)
"""The alarm of the call that a task belongs to."""

Failing = Coroutine[Any, Any, BaseException | None]
"""A coroutine that returns the exception with which it has failed, or None if it succeeded."""


async def finished(
    call: Failing, timeout: timedelta | None, target: Address
) -> BaseException | None:
    """Await a coroutine that returns its exception, and cancel it when it takes too long.

    The coroutine runs as a separate task: however it ends, the task that awaits it goes on.

    Returns:
        The exception of the coroutine, or a CallTimeoutError if it has ended after its timeout;
        None if it has succeeded.

    Raises:
        CallTimeoutError: if the coroutine goes on although it was cancelled.
    """
    loop = asyncio.get_running_loop()
    alarm = Alarm(timeout, target)
    if alarm.seconds is None:
        task = loop.create_task(call)
        await _WatchedCall(task, alarm, loop).end
        return _result(task)
    task = loop.create_task(_in_steps(call, alarm))
    watched = _WatchedCall(task, alarm, loop)
    watchdog = _watchdog_of(loop)
    watchdog.watch(watched)
    try:
        await watched.end
    finally:
        watchdog.forget(watched)
    if not task.done():
        raise CallTimeoutError
    error = _result(task)
    if not watched.is_over:
        return error
    return CallTimeoutError().with_traceback(None if error is None else error.__traceback__)


class Stretch:
    """Lets consecutive calls share an alarm and its timer, as long as they do not wait for anything.

    :meth:`end` has to be called after the last call.
    """

    __slots__ = ("_is_on", "_timer", "alarm")

    def __init__(self, timeout: timedelta | None, target: Address) -> None:
        self.alarm = Alarm(timeout, target)
        self._timer = HeldTimer()
        self._is_on = False

    def begin(self) -> None:
        """Switch the alarm on, unless it is on."""
        if not self._is_on:
            self._is_on = True
            self._timer.begin()
            self.alarm.__enter__()

    def end(self) -> None:
        """Release the alarm and the timer, so that other code can use both."""
        if self._is_on:
            self._is_on = False
            self.alarm.__exit__()
            self._timer.end()


async def finished_here(call: Failing, stretch: Stretch) -> BaseException | None:
    """Await a coroutine as :func:`finished` does, but in the present task and event loop.

    The loop gets neither a watchdog nor a task factory, and cancelling the task cancels the call.
    A call that goes on although it was cancelled cannot be abandoned. On Python 3.10, a call with a
    timeout runs in a task of its own.

    Raises:
        CallTimeoutError: if the coroutine takes too long.
    """
    alarm = stretch.alarm
    if alarm.seconds is None:
        return await call
    if sys.version_info < (3, 11):
        loop = asyncio.get_running_loop()
        end = loop.time() + alarm.seconds
        try:
            error = await asyncio.wait_for(_rest(call, alarm, ()), alarm.seconds)
        except asyncio.TimeoutError:
            raise CallTimeoutError from None
        if loop.time() >= end:  # the call has swallowed its cancellation
            raise CallTimeoutError
        return error
    stretch.begin()
    alarm.begin()
    try:
        awaited = call.send(None)
    except StopIteration as done:  # the call has not waited for anything, and needs no limit
        result: BaseException | None = done.value
        return result
    finally:
        alarm.end()
    stretch.end()
    limit = asyncio.timeout(alarm.seconds)
    try:
        async with limit:
            error = await _rest(call, alarm, (awaited,))
    except TimeoutError:  # from the limit alone: the call returns its exceptions
        raise CallTimeoutError from None
    if limit.expired():
        raise CallTimeoutError
    return error


async def _rest(call: Coroutine[Any, Any, T], alarm: Alarm, awaited: tuple[object, ...]) -> T:
    return await _steps(call, alarm, awaited)


def _result(task: asyncio.Task[BaseException | None]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception() or task.result()


async def _in_steps(call: Coroutine[Any, Any, T], alarm: Alarm) -> T:
    _alarm.set(alarm)
    return await _steps(call, alarm)


def _new_task(
    loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, T], **options: Any
) -> asyncio.Task[T]:
    """Make a task; the alarm of a call also covers the tasks that the call makes."""
    alarm = _alarm.get()
    return asyncio.Task(call if alarm is None else _in_steps(call, alarm), loop=loop, **options)


@coroutine
def _steps(
    call: Coroutine[Any, Any, T], alarm: Alarm, awaited: tuple[object, ...] = ()
) -> Generator[Any, Any, T]:
    """Await a coroutine, with an alarm for each stretch in which it runs without waiting.

    ``awaited`` has the object that the coroutine waits for; it is empty if the coroutine has not
    begun.
    """
    step, argument = call.send, None
    while True:
        if awaited:
            try:
                argument, step = (yield awaited[0]), call.send
            except BaseException as error:  # noqa: BLE001 - the coroutine gets it
                argument, step = error, call.throw
        try:
            awaited = (_step(step, argument, alarm),)
        except StopIteration as end:
            result: T = end.value
            return result


def _step(step: Callable[[Any], object], argument: object, alarm: Alarm) -> object:
    """Run a coroutine until it waits; return the object that it waits for.

    Raises:
        StopIteration: with the result of the coroutine, when it ends.
    """
    with alarm:
        alarm.resume()
        try:
            return step(argument)
        finally:
            alarm.end()


class _WatchedCall:
    """A call whose timeout the watchdog checks."""

    __slots__ = ("alarm", "elapsed", "end", "interval", "is_over", "task")

    def __init__(
        self,
        task: asyncio.Task[BaseException | None],
        alarm: Alarm,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.task = task
        self.alarm = alarm
        self.end: asyncio.Future[None] = loop.create_future()
        """A future that is done when the call has ended or was abandoned."""
        self.is_over = False
        """Whether the timeout was over before the call ended."""
        self.elapsed = 0.0
        """Seconds since the call was begun or, if ``is_over``, cancelled."""
        self.interval = _interval(alarm.seconds or 0.0)
        task.add_done_callback(self._finish)

    def look(self, seconds: float) -> None:
        """Add ``seconds`` to the elapsed time; warn about, cancel or abandon a call that takes too long."""
        self.elapsed += seconds
        timeout = self.alarm.seconds or 0.0
        if self.is_over:
            if self.elapsed >= _GRACE:
                self._finish()
        elif self.elapsed >= timeout:
            self.is_over, self.elapsed, self.interval = True, 0.0, _interval(_GRACE)
            self.task.cancel()
        elif self.elapsed >= timeout / 2:
            self.alarm.warn()

    def _finish(self, _task: object = None) -> None:
        if not self.end.done():
            self.end.set_result(None)


def _interval(seconds: float) -> float:
    return max(min(seconds / _LOOKS, _LONGEST_INTERVAL), _SHORTEST_INTERVAL)


class _Watchdog:
    """Checks the timeouts of the calls that run on one event loop."""

    def __init__(self) -> None:
        self._calls: set[_WatchedCall] = set()
        self._interval = 0.0
        """Seconds from the last look to the next one."""
        self._last_look = 0.0
        """The time of the last look, by the loop's clock."""
        self._next: asyncio.TimerHandle | None = None

    def watch(self, call: _WatchedCall) -> None:
        """Start to check the timeout of a call."""
        if self._next is None or call.interval < self._interval:
            self._count_part()
            self._look_in(call.interval)
        # The present interval counts in full, although a part of it may be over already.
        call.elapsed = -call.interval
        self._calls.add(call)

    def forget(self, call: _WatchedCall) -> None:
        """End the checks of a call's timeout."""
        self._calls.discard(call)
        if not self._calls and self._next is not None:
            self._next.cancel()
            self._next = None

    def _count_part(self) -> None:
        """When an interval ends early, add the time that has passed of it to each call's elapsed time."""
        part = min(asyncio.get_running_loop().time() - self._last_look, self._interval)
        for call in self._calls:
            call.elapsed += part

    def _look_in(self, interval: float) -> None:
        if self._next is not None:
            self._next.cancel()
        loop = asyncio.get_running_loop()
        self._interval, self._last_look = interval, loop.time()
        self._next = loop.call_later(interval, self._look)

    def _look(self) -> None:
        self._next = None
        for call in list(self._calls):
            call.look(self._interval)
        if self._calls:
            self._look_in(min(call.interval for call in self._calls))


_watchdogs: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watchdog] = WeakKeyDictionary()


def _watchdog_of(loop: asyncio.AbstractEventLoop) -> _Watchdog:
    watchdog = _watchdogs.get(loop)
    if watchdog is None:
        watchdog = _watchdogs[loop] = _Watchdog()
        loop.set_task_factory(_new_task)  # type: ignore[arg-type] # it is never given a generator
    return watchdog
