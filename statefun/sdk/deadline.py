# SPDX-License-Identifier: Apache-2.0
"""How long a call of a user's function may take, and ending one that takes longer.

A plain function is interrupted by an exception that a signal handler raises in it, which works in
the main thread of a process, where Spark's workers run functions. A coroutine is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any

from statefun.sdk.address import Address

logger = logging.getLogger("statefun")

_GRACE = 1.0
"""Seconds that a coroutine has to end after it was cancelled."""
_ROUNDING = 0.001
"""Seconds by which timers may be early; and no timer can be set to none at all."""

_MOMENTS = 8
_MOMENT = 1.0
"""Seconds after which a coroutine is looked at again."""
_LONGEST = 1e8
"""Seconds, three years, after which an alarm looks at the time again: timers have a limit."""


class CallTimeoutError(BaseException):
    """A call took longer than it may; ``except Exception`` in users' code does not catch it."""


class Alarm:
    """Interrupts calls of a plain function that take too long; a context manager around some.

    Outside of the main thread, and without a timeout, it does nothing.

    Args:
        timeout: of each call, or None.
        target: who is called.
    """

    def __init__(self, timeout: timedelta | None, target: Address) -> None:
        self._seconds = None if timeout is None else timeout.total_seconds()
        self._target = target
        self._begun: float | None = None
        self._is_on = False
        self._before: tuple[float, float] = (0.0, 0.0)
        self._handler: Any = None

    def __enter__(self) -> Alarm:  # noqa: PYI034 - Python 3.10 has no Self
        if self._seconds is not None and threading.get_ident() == threading.main_thread().ident:
            handler = signal.getsignal(signal.SIGALRM)
            if handler is not _on_alarm:
                signal.signal(signal.SIGALRM, _on_alarm)
                # One that nobody has set is left away: each change would cost too much.
                self._handler = None if handler is signal.SIG_DFL else handler
            _ringing.append(self)
            self._before = _ring_in(self._seconds / 2)
            self._is_on = True
        return self

    def __exit__(self, *_error: object) -> None:
        self._begun = None
        if self._is_on:
            self._is_on = False
            _ringing.pop()
            signal.setitimer(signal.ITIMER_REAL, *self._before)
            if self._handler is not None:  # the user's own
                signal.signal(signal.SIGALRM, self._handler)

    def begin(self) -> None:
        """Begin a call."""
        self._begun = time.monotonic()

    def end(self) -> None:
        """End the call: from now on nothing is interrupted."""
        self._begun = None

    def ring(self) -> None:
        """Do what the time asks for: interrupt the present call, or warn of it, or nothing.

        Raises:
            CallTimeoutError: inside the user's function.
        """
        seconds, begun = self._seconds or 0.0, self._begun
        half = seconds / 2
        passed = 0.0 if begun is None else time.monotonic() - begun
        if passed >= seconds:
            # Again and again, if the function swallows it.
            _ring_in(half)
            raise CallTimeoutError
        next_look = (half if passed < half else seconds) - passed
        _ring_in(next_look)
        if passed >= half:
            _warn(self._target, seconds)


_ringing: list[Alarm] = []
"""The alarms that are on; the last one counts."""


def _ring_in(seconds: float) -> tuple[float, float]:
    """Set the timer; return when it would have rung, and how often."""
    return signal.setitimer(signal.ITIMER_REAL, min(seconds + _ROUNDING, _LONGEST))


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    if _ringing:
        _ringing[-1].ring()


async def finished(
    call: Coroutine[Any, Any, BaseException | None], timeout: timedelta | None, target: Address
) -> BaseException | None:
    """Await a coroutine that returns what it has failed on, and cancel it when it takes too long.

    It is a task of its own: whatever becomes of it, the one that awaits it goes on.

    Raises:
        CallTimeoutError: if it goes on although it was cancelled.
    """
    seconds = None if timeout is None else timeout.total_seconds()
    task = asyncio.ensure_future(call)
    if seconds is None:
        await asyncio.wait({task})
    else:
        await _wait(task, seconds / 2)
        if not task.done():
            _warn(target, seconds)
            await _wait(task, seconds / 2)
    if task.done():
        return asyncio.CancelledError() if task.cancelled() else task.result()
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if not task.done():
        raise CallTimeoutError
    error = CallTimeoutError()
    return error if task.cancelled() else error.with_traceback(_trace_of(task.result()))


async def _wait(task: asyncio.Future[Any], seconds: float) -> None:
    """Wait for a task, by the time in which the loop had room for it.

    A moment that comes late, as the loop is busy with the calls of others, counts as a short one.
    """
    moments = max(_MOMENTS, math.ceil(seconds / _MOMENT))
    for _ in range(moments):
        await asyncio.wait({task}, timeout=seconds / moments)
        if task.done():
            return


def _trace_of(error: BaseException | None) -> Any:
    return None if error is None else error.__traceback__


def _warn(target: Address, seconds: float) -> None:
    with suppress(RuntimeError):  # the handler of a signal may interrupt the same stream's output
        logger.warning(
            "function %s at address %s has taken half of its timeout of %s",
            target.typename,
            target,
            timedelta(seconds=seconds),
        )
