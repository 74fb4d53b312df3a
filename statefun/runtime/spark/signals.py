# SPDX-License-Identifier: Apache-2.0
"""Ends an application on Ctrl-C or SIGTERM: soon, and without a stack trace."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

from statefun.runtime.spark_internals.jvm import JvmError, accept_calls, is_submitted, jvm

_END_PATIENCE = timedelta(seconds=10)
"""How long spark-submit's JVM waits after a signal until the Python program has ended."""


_received: list[int] = []
"""The numbers of the signals that have interrupted applications of this process."""


def exit_code_of_interrupt() -> int:
    """Return the exit code of a program that a signal has ended: 143 after SIGTERM, 130 after Ctrl-C."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


@contextmanager
def signals_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Make SIGTERM stop the application as Ctrl-C does; neither of them prints a stack trace.

    Args:
        stop: makes the application end; may be called from any thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _frame: FrameType | None) -> None:
        _received.append(number)
        # The exception is lost if a finalizer happens to run just then.
        stop()
        raise KeyboardInterrupt

    handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, interrupt)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not the program's own
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        with _end_of_jvm_stops():
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _end_of_jvm_stops() -> Iterator[None]:
    """Make a signal to spark-submit's JVM stop the Python program that the JVM has started.

    Only the JVM gets the signal, and the program's output goes through that JVM, so the program must end
    first.
    """
    if not is_submitted():
        yield
        return
    accept_calls()
    lang = jvm().java.lang
    hook = lang.Thread(_EndDelay())
    lang.Runtime.getRuntime().addShutdownHook(hook)
    try:
        yield
    finally:
        with suppress(JvmError, OSError):  # a JVM that is ending does not remove hooks
            lang.Runtime.getRuntime().removeShutdownHook(hook)


class _EndDelay:
    """Delays the end of spark-submit's JVM until the Python program has ended."""

    def run(self) -> None:
        """Send SIGTERM to the Python program; the JVM waits until it has ended, for 10 seconds at most."""
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(_END_PATIENCE.total_seconds())

    class Java:
        implements = ("java.lang.Runnable",)
