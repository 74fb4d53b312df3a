# SPDX-License-Identifier: Apache-2.0
"""The time limit of a call of a user's function: a call that takes longer is interrupted.

A plain function is interrupted by an exception that a signal handler raises in it, which works in
the main thread of a process, where Spark's workers run functions. So is a coroutine that blocks its
event loop. A coroutine that waits is cancelled by the loop's watchdog.

The exception may come while Python runs a finalizer (``__del__``, or the callback of a weak
reference), which cannot raise. Then Python ignores the exception, and the alarm rings again.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from _signal import (  # type: ignore[import-not-found] # the typeshed has none
    getsignal,  # the public one makes enums, which takes longer than a call
)
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from signal import ITIMER_REAL, getitimer
from types import FrameType
from typing import Any

from statefun.sdk.address import Address

logger = logging.getLogger("statefun")

_ROUNDING = 0.001
"""Seconds by which timers may be early; and no timer can be set to none at all."""
_LONGEST = 1e8
"""Seconds, three years, after which an alarm looks at the time again: timers have a limit."""


class CallTimeoutError(BaseException):
    """A call took longer than it may; ``except Exception`` in users' code does not catch it."""


class KeptTimer:
    """A time in which the timer of alarms is kept: setting it for each call would cost too much.

    Afterwards timer and handler are as they were. A function that sets its own meanwhile makes
    the alarms of later calls set theirs anew.
    """

    __slots__ = ("_setup",)

    def __init__(self) -> None:
        self._setup: _Setup | None = None

    def begin(self) -> None:
        """Keep the timer from now on, unless somebody does."""
        if not _kept and _is_main_thread():
            self._setup = _take_over(0)
            _kept.append(threading.get_ident())

    def end(self) -> None:
        """Give the timer back, if it was kept here."""
        if self._setup is not None:
            _kept.pop()
            _give_back(self._setup)
            self._setup = None


@contextmanager
def standby() -> Iterator[None]:
    """Keep the timer of alarms for many calls."""
    timer = KeptTimer()
    timer.begin()
    try:
        yield
    finally:
        timer.end()


class Alarm:
    """Interrupts calls that take too long; a context manager around calls of a plain function.

    Outside of the main thread, and without a timeout, it does nothing.

    Args:
        timeout: of each call, or None.
        target: who is called.
    """

    __slots__ = ("_begun", "_is_on", "_setup", "_target", "_warned", "seconds")

    def __init__(self, timeout: timedelta | None, target: Address) -> None:
        self.seconds = None if timeout is None else timeout.total_seconds()
        self._target = target
        self._begun: float | None = None
        self._is_on = False
        self._warned = False
        self._setup: _Setup | None = None

    def __enter__(self) -> Alarm:  # noqa: PYI034 - Python 3.10 has no Self
        if self.seconds is not None and (
            (_kept and _kept[0] == threading.get_ident()) or _is_main_thread()
        ):
            _ringing.append(self)
            self._is_on = True
            half = self.seconds / 2
            if not _kept or getsignal(signal.SIGALRM) is not _on_alarm:
                self._setup = _take_over(half)
            elif not 0 < getitimer(ITIMER_REAL)[0] <= half + _ROUNDING:
                _ring_in(half)
        return self

    def __exit__(self, *_error: object) -> None:
        self._begun = None
        if self._is_on:
            self._is_on = False
            _ringing.pop()
            if self._setup is not None:
                _give_back(self._setup)
                self._setup = None

    def begin(self) -> None:
        """Begin a call."""
        self._warned = False
        self._begun = time.monotonic()

    def resume(self) -> None:
        """Begin a stretch of a coroutine, which lasts until the coroutine waits again."""
        self._begun = time.monotonic()

    def end(self) -> None:
        """End the call or stretch: from now on nothing is interrupted."""
        self._begun = None

    def ring(self) -> None:
        """Interrupt the present call if its time is over, or warn if half of the time is.

        Raises:
            CallTimeoutError: inside the user's function.
        """
        seconds, begun = self.seconds or 0.0, self._begun
        half = seconds / 2
        passed = 0.0 if begun is None else time.monotonic() - begun
        if passed >= seconds:
            # Again and again, if the function swallows it.
            _ring_in(half)
            raise CallTimeoutError
        next_look = (half if passed < half else seconds) - passed
        _ring_in(next_look)
        if passed >= half:
            self.warn()

    def warn(self) -> None:
        """Say, once for a call, that half of the time is over."""
        if not self._warned:
            self._warned = True
            _warn(self._target, self.seconds or 0.0)


_ringing: list[Alarm] = []
"""The alarms that are on; the last one counts."""
_kept: list[int] = []
"""The main thread, while the timer is kept between calls."""
_Hook = Callable[["sys.UnraisableHookArgs"], Any]
_hooks: list[_Hook] = []
"""The hooks of ignored exceptions that were set before the alarms' own."""
_Setup = tuple[Any, tuple[float, float], _Hook]
"""What to set again: the signal handler, if any, the timer, and the hook of ignored exceptions."""


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _take_over(seconds: float) -> _Setup:
    """Set handler and timer, or no timer for 0 seconds; return the former setting."""
    handler = getsignal(signal.SIGALRM)
    if handler is not _on_alarm:
        signal.signal(signal.SIGALRM, _on_alarm)
    # The default handler is not set again: with it, a signal that comes late ends the process.
    mine = handler is _on_alarm or handler == signal.SIG_DFL
    hook = sys.unraisablehook
    if hook is not _on_ignored:
        _hooks.append(hook)
        sys.unraisablehook = _on_ignored
    before = _ring_in(seconds) if seconds else signal.setitimer(ITIMER_REAL, 0)
    return None if mine else handler, before, hook


def _give_back(setup: _Setup) -> None:
    handler, timer, hook = setup
    signal.setitimer(ITIMER_REAL, *timer)
    if hook is not _on_ignored:
        _hooks.pop()
        if sys.unraisablehook is _on_ignored:  # otherwise a function has set its own
            sys.unraisablehook = hook
    if handler is not None:  # the user's own
        signal.signal(signal.SIGALRM, handler)


def _ring_in(seconds: float) -> tuple[float, float]:
    """Set the timer; return when it would have rung, and how often."""
    return signal.setitimer(ITIMER_REAL, min(seconds + _ROUNDING, _LONGEST))


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    if _ringing:
        _ringing[-1].ring()


def _on_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """Report ignored exceptions to the hook that was set before, except for timeouts."""
    if not isinstance(ignored.exc_value, CallTimeoutError):
        (_hooks[-1] if _hooks else sys.__unraisablehook__)(ignored)


def _warn(target: Address, seconds: float) -> None:
    with suppress(RuntimeError):  # the handler of a signal may interrupt the same stream's output
        logger.warning(
            "function %s at address %s has taken half of its timeout of %s",
            target.typename,
            target,
            timedelta(seconds=seconds),
        )
