# SPDX-License-Identifier: Apache-2.0
"""The time limit of a call of a user's function: a call that takes longer is interrupted.

A plain function is interrupted by an exception that a signal handler raises in it, which works in
the main thread of a process, where Spark's workers run functions. A coroutine that blocks its event
loop is interrupted in the same way. A coroutine that waits is cancelled by the loop's watchdog.

The exception may come while Python runs a finalizer (``__del__``, or the callback of a weak
reference), which cannot raise. Then Python ignores the exception, and a later signal raises it again.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from _signal import (  # type: ignore[import-not-found] # the typeshed has none
    getsignal,  # the public one makes an enum, which takes longer than a call
)
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any, Final

from statefun.sdk.address import Address
from statefun.sdk.log_limits import LogLimit

logger = logging.getLogger("statefun")

_ROUNDING: Final = 0.001
"""Seconds added to each timer's delay: a timer may ring early, and a timer of 0 seconds never rings."""
_LONGEST: Final = 1e8
"""The longest timer in seconds (three years). For a longer timeout, the timer is set repeatedly."""
# Compiled code reads these faster than attributes of modules.
_SIGALRM: Final = int(signal.SIGALRM)
_ITIMER_REAL: Final = int(signal.ITIMER_REAL)
_get_ident: Final = threading.get_ident
_getsignal: Final = getsignal
_getitimer: Final = signal.getitimer
_monotonic: Final = time.monotonic


class CallTimeoutError(BaseException):
    """A call took longer than its timeout; ``except Exception`` in users' code does not catch it."""


class HeldTimer:
    """Leaves the signal handler and the timer of alarms installed between calls.

    Installing both for each call would take too long. :meth:`end` restores the former handler and
    timer. If a function sets a handler or timer of its own meanwhile, the alarm of the next call
    replaces it.
    """

    __slots__ = ("_setup",)

    def __init__(self) -> None:
        self._setup: _Setup | None = None

    def begin(self) -> None:
        """Install the signal handler and the timer of alarms, unless another HeldTimer has done so."""
        if not _holders and _is_main_thread():
            self._setup = _take_over(0)
            _holders.append(threading.get_ident())

    def end(self) -> None:
        """Restore the former signal handler and timer, if this object has replaced them."""
        if self._setup is not None:
            _holders.pop()
            _give_back(self._setup)
            self._setup = None


@contextmanager
def standby() -> Iterator[None]:
    """Install the signal handler and the timer of alarms once for all calls that the ``with`` block makes.

    At the end of the block, the former handler and timer are restored.
    """
    timer = HeldTimer()
    timer.begin()
    try:
        yield
    finally:
        timer.end()


class Alarm:
    """Interrupts calls that take too long; a context manager around calls of a plain function.

    An alarm does nothing outside of the main thread, or if it has no timeout.

    Args:
        timeout: the timeout of each call; None for no limit.
        target: the address that is called.
    """

    __slots__ = ("_beginning", "_has_warned", "_is_on", "_setup", "_target", "seconds")

    def __init__(self, timeout: timedelta | None, target: Address) -> None:
        self.seconds = None if timeout is None else timeout.total_seconds()
        self._target = target
        self._beginning: float | None = None
        self._is_on = False
        self._has_warned = False
        self._setup: _Setup | None = None

    def __enter__(self) -> Alarm:  # noqa: PYI034 - Python 3.10 has no Self
        seconds = self.seconds
        if seconds is not None and (
            (_holders and _holders[0] == _get_ident()) or _is_main_thread()
        ):
            _alarms.append(self)
            self._is_on = True
            half = seconds / 2
            if not _holders or _getsignal(_SIGALRM) is not _on_alarm:
                self._setup = _take_over(half)
            elif not 0 < _getitimer(_ITIMER_REAL)[0] <= half + _ROUNDING:
                _ring_in(half)
        return self

    def __exit__(self, *_error: object) -> None:
        self._beginning = None
        if self._is_on:
            self._is_on = False
            _alarms.pop()
            if self._setup is not None:
                _give_back(self._setup)
                self._setup = None

    def begin(self) -> None:
        """Start to measure the time of a call."""
        self._has_warned = False
        self._beginning = _monotonic()

    def resume(self) -> None:
        """Start to measure how long a coroutine runs before it waits again."""
        self._beginning = time.monotonic()

    def end(self) -> None:
        """Stop measuring the time of the call or coroutine, which the alarm no longer interrupts."""
        self._beginning = None

    def ring(self) -> None:
        """Interrupt the present call if its timeout is over; log a warning if half of it is over.

        Raises:
            CallTimeoutError: inside the user's function.
        """
        seconds, beginning = self.seconds or 0.0, self._beginning
        half = seconds / 2
        elapsed = 0.0 if beginning is None else time.monotonic() - beginning
        if elapsed >= seconds:
            # The alarm rings again, in case the function swallows the exception.
            _ring_in(half)
            raise CallTimeoutError
        next_look = (half if elapsed < half else seconds) - elapsed
        _ring_in(next_look)
        if elapsed >= half:
            self.warn()

    def warn(self) -> None:
        """Log a warning, once per call, that half of the call's timeout is over."""
        if not self._has_warned:
            self._has_warned = True
            _warn(self._target, self.seconds or 0.0)


_alarms: Final[list[Alarm]] = []
"""The alarms that are switched on, outermost first; the signal handler rings the last one."""
_holders: Final[list[int]] = []
"""The main thread's identifier while a :class:`HeldTimer` has installed the timer; otherwise empty."""
_warnings = LogLimit(timedelta(seconds=10))
"""Limits the warnings about each function: a slow service makes the calls of many addresses slow at once."""
_Hook = Callable[["sys.UnraisableHookArgs"], Any]
_hooks: list[_Hook] = []
"""The former values of ``sys.unraisablehook``, which alarms replace by a hook of their own."""
_Setup = tuple[Any, tuple[float, float], _Hook]
"""The settings to restore: signal handler (None: restore none), timer and ``sys.unraisablehook``."""


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _take_over(seconds: float) -> _Setup:
    """Set the signal handler and the timer (0 seconds: switch the timer off); return the former settings."""
    handler = getsignal(signal.SIGALRM)
    if handler is not _on_alarm:
        signal.signal(signal.SIGALRM, _on_alarm)
    # The default handler is not set again: with it, a signal that comes late ends the process.
    is_ours = handler is _on_alarm or handler == signal.SIG_DFL
    hook = sys.unraisablehook
    if hook is not _on_ignored:
        _hooks.append(hook)
        sys.unraisablehook = _on_ignored
    before = _ring_in(seconds) if seconds else signal.setitimer(_ITIMER_REAL, 0)
    return None if is_ours else handler, before, hook


def _give_back(setup: _Setup) -> None:
    handler, timer, hook = setup
    signal.setitimer(_ITIMER_REAL, *timer)
    if hook is not _on_ignored:
        _hooks.pop()
        if sys.unraisablehook is _on_ignored:  # otherwise a function has set its own hook
            sys.unraisablehook = hook
    if handler is not None:  # the user's own
        signal.signal(signal.SIGALRM, handler)


def _ring_in(seconds: float) -> tuple[float, float]:
    """Let the timer ring after ``seconds``; return the timer's former delay and interval."""
    return signal.setitimer(_ITIMER_REAL, min(seconds + _ROUNDING, _LONGEST))


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    if _alarms:
        _alarms[-1].ring()


def _on_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """Pass an exception that Python ignores to the former hook, unless it is a CallTimeoutError."""
    if not isinstance(ignored.exc_value, CallTimeoutError):
        (_hooks[-1] if _hooks else sys.__unraisablehook__)(ignored)


def _warn(target: Address, seconds: float) -> None:
    left_out = _warnings.passed(target.typename)
    if left_out is None:
        return
    with suppress(RuntimeError):  # the handler of a signal may interrupt the same stream's output
        logger.warning(
            "function %s at address %s has taken half of its timeout of %s, at which it is interrupted%s",
            target.typename,
            target,
            timedelta(seconds=seconds),
            f"; {left_out:,} such warnings about the function were left out before"
            if left_out
            else "",
        )
