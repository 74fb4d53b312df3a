# SPDX-License-Identifier: Apache-2.0
"""Ending calls of coroutine functions that take too long: one watchdog for each event loop.

Now and then it looks at all calls that run. A call's time counts only while the loop had room for
it: an interval that ends late, because other calls keep the loop busy, counts as a short one.
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
from statefun.sdk.deadline import Alarm, CallTimeoutError, KeptTimer

_GRACE = 1.0
"""Seconds that a coroutine has to end after it was cancelled."""
_MOMENTS = 8
_MOMENT = 1.0
"""Seconds after which calls are looked at again, or a part of their timeout if that is shorter."""
_SHORTEST = 0.001
"""Seconds: a loop has other things to do than to look at calls."""

T = TypeVar("T")
_alarm: ContextVar[Alarm | None] = ContextVar("statefun_alarm", default=None)
"""The alarm of the call that a task belongs to."""

Failing = Coroutine[Any, Any, BaseException | None]
"""A coroutine that returns the exception it failed on, or None."""


async def finished(
    call: Failing, timeout: timedelta | None, target: Address
) -> BaseException | None:
    """Await a coroutine that returns its exception, and cancel it when it takes too long.

    The coroutine runs as a separate task: however it ends, the awaiting caller goes on.

    Raises:
        CallTimeoutError: if the coroutine goes on although it was cancelled.
    """
    loop = asyncio.get_running_loop()
    alarm = Alarm(timeout, target)
    if alarm.seconds is None:
        task = loop.create_task(call)
        await _Watched(task, alarm, loop).end
        return _result(task)
    task = loop.create_task(_in_steps(call, alarm))
    watched = _Watched(task, alarm, loop)
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
    """Calls that come one after the other, none of which waits: they share an alarm and its timer.

    It has to be ended after the last one.
    """

    __slots__ = ("_is_on", "_kept", "alarm")

    def __init__(self, timeout: timedelta | None, target: Address) -> None:
        self.alarm = Alarm(timeout, target)
        self._kept = KeptTimer()
        self._is_on = False

    def begin(self) -> None:
        """Begin, or go on."""
        if not self._is_on:
            self._is_on = True
            self._kept.begin()
            self.alarm.__enter__()

    def end(self) -> None:
        """Let others use the loop, and the timer."""
        if self._is_on:
            self._is_on = False
            self.alarm.__exit__()
            self._kept.end()


async def finished_here(call: Failing, stretch: Stretch) -> BaseException | None:
    """Await a coroutine as :func:`finished` does, but in the task and loop of a caller of users' own.

    Nothing is set up for the loop, and when the caller's task is cancelled, so is the call. A
    call that goes on although it was cancelled cannot be abandoned.

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
        if loop.time() >= end:  # it was cancelled, and has ended in its own way
            raise CallTimeoutError
        return error
    stretch.begin()
    alarm.begin()
    try:
        awaited = call.send(None)
    except StopIteration as done:  # it has not waited for anything, and needs no limit
        result: BaseException | None = done.value
        return result
    finally:
        alarm.end()
    stretch.end()
    limit = asyncio.timeout(alarm.seconds)
    try:
        async with limit:
            error = await _rest(call, alarm, (awaited,))
    except TimeoutError:  # only of the limit: the call returns its exceptions
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
    """Make a task; tasks that a function's call makes are under the call's alarm, too."""
    alarm = _alarm.get()
    return asyncio.Task(call if alarm is None else _in_steps(call, alarm), loop=loop, **options)


@coroutine
def _steps(
    call: Coroutine[Any, Any, T], alarm: Alarm, awaited: tuple[object, ...] = ()
) -> Generator[Any, Any, T]:
    """Await a coroutine, with an alarm for each stretch in which it runs without waiting.

    A coroutine that has begun waits for the one item of ``awaited``.
    """
    step, argument = call.send, None
    while True:
        if awaited:
            try:
                argument, step = (yield awaited[0]), call.send
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine
                argument, step = error, call.throw
        try:
            awaited = (_step(step, argument, alarm),)
        except StopIteration as end:
            result: T = end.value
            return result


def _step(step: Callable[[Any], object], argument: object, alarm: Alarm) -> object:
    """Let a coroutine run until it waits; return what it waits for.

    Raises:
        StopIteration: with its result, when it ends.
    """
    with alarm:
        alarm.resume()
        try:
            return step(argument)
        finally:
            alarm.end()


class _Watched:
    """A call that the watchdog looks at."""

    __slots__ = ("alarm", "end", "is_over", "moment", "passed", "task")

    def __init__(
        self,
        task: asyncio.Task[BaseException | None],
        alarm: Alarm,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.task = task
        self.alarm = alarm
        self.end: asyncio.Future[None] = loop.create_future()
        """Done when the call has ended or was abandoned."""
        self.is_over = False
        """Whether the time was over before the call was."""
        self.passed = 0.0
        self.moment = _moment(alarm.seconds or 0.0)
        task.add_done_callback(self._finish)

    def look(self, passed: float) -> None:
        """Add the time that has passed; warn, cancel or abandon the call when its time is over."""
        self.passed += passed
        seconds = self.alarm.seconds or 0.0
        if self.is_over:
            if self.passed >= _GRACE:
                self._finish()
        elif self.passed >= seconds:
            self.is_over, self.passed, self.moment = True, 0.0, _moment(_GRACE)
            self.task.cancel()
        elif self.passed >= seconds / 2:
            self.alarm.warn()

    def _finish(self, _task: object = None) -> None:
        if not self.end.done():
            self.end.set_result(None)


def _moment(seconds: float) -> float:
    return max(min(seconds / _MOMENTS, _MOMENT), _SHORTEST)


class _Watchdog:
    """Looks at the calls that run on one loop."""

    def __init__(self) -> None:
        self._calls: set[_Watched] = set()
        self._moment = 0.0
        self._begun = 0.0
        """When the present moment has begun, by the loop's clock."""
        self._next: asyncio.TimerHandle | None = None

    def watch(self, call: _Watched) -> None:
        """Look at a call from now on."""
        if self._next is None or call.moment < self._moment:
            self._count_part()
            self._look_in(call.moment)
        # The present moment may be partly over, and will count in full.
        call.passed = -call.moment
        self._calls.add(call)

    def forget(self, call: _Watched) -> None:
        """Look at a call no longer."""
        self._calls.discard(call)
        if not self._calls and self._next is not None:
            self._next.cancel()
            self._next = None

    def _count_part(self) -> None:
        """Count what is over of the present moment, which ends early."""
        part = min(asyncio.get_running_loop().time() - self._begun, self._moment)
        for call in self._calls:
            call.passed += part

    def _look_in(self, moment: float) -> None:
        if self._next is not None:
            self._next.cancel()
        loop = asyncio.get_running_loop()
        self._moment, self._begun = moment, loop.time()
        self._next = loop.call_later(moment, self._look)

    def _look(self) -> None:
        self._next = None
        for call in list(self._calls):
            call.look(self._moment)
        if self._calls:
            self._look_in(min(call.moment for call in self._calls))


_watchdogs: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watchdog] = WeakKeyDictionary()


def _watchdog_of(loop: asyncio.AbstractEventLoop) -> _Watchdog:
    watchdog = _watchdogs.get(loop)
    if watchdog is None:
        watchdog = _watchdogs[loop] = _Watchdog()
        loop.set_task_factory(_new_task)  # type: ignore[arg-type] # it is never given a generator
    return watchdog
