# SPDX-License-Identifier: Apache-2.0
"""How long a call of a user's function may take, and ending one that takes longer.

A plain function is interrupted by an exception that a signal handler raises in it, which works in
the main thread of a process, where Spark's workers run functions. A coroutine is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import cache
from types import FrameType
from typing import Any

from statefun.sdk.address import Address

logger = logging.getLogger("statefun")

_GRACE = 1.0
"""Seconds that a coroutine has to end after it was cancelled."""
_ROUNDING = 0.001
"""Seconds by which timers may be early; and no timer can be set to none at all."""

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

    def __enter__(self) -> Alarm:  # noqa: PYI034 - Python 3.10 has no Self
        if self._seconds is not None and threading.get_ident() == threading.main_thread().ident:
            _listen()
            _ringing.append(self)
            _ring_in(self._seconds / 2)
        return self

    def __exit__(self, *_error: object) -> None:
        self._begun = None
        if self in _ringing:
            _ringing.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)

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
"""The alarm that is on, if one is."""


def _ring_in(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, min(seconds + _ROUNDING, _LONGEST))


@cache
def _listen() -> None:
    """Handle the signal, from the process's first alarm on: each time would cost too much."""
    signal.signal(signal.SIGALRM, _on_alarm)


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    for alarm in _ringing:
        alarm.ring()


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
        await asyncio.wait({task}, timeout=seconds / 2)
        if not task.done():
            _warn(target, seconds)
            await asyncio.wait({task}, timeout=seconds / 2)
    if task.done():
        return asyncio.CancelledError() if task.cancelled() else task.result()
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if not task.done():
        raise CallTimeoutError
    error = CallTimeoutError()
    return error if task.cancelled() else error.with_traceback(_trace_of(task.result()))


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
