# SPDX-License-Identifier: Apache-2.0
"""Ends an application on Ctrl-C or SIGTERM: soon, and without a stack trace."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from types import FrameType

from statefun.runtime.spark_internals.jvm import is_submitted
from statefun.runtime.spark_internals.shutdown import before_spark_stops

_END_TIME = timedelta(seconds=10)
"""How long the end of an application may take after a signal, besides the time that it gives its calls."""


_received: list[int] = []
"""The numbers of the signals that the newest application of this process has got."""


def exit_code_of_interrupt() -> int:
    """Return the exit code of a program that a signal has ended: 143 after SIGTERM, 130 after Ctrl-C."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


@contextmanager
def signals_interrupt(stop: Callable[[], bool], grace: timedelta) -> Iterator[None]:
    """Make SIGTERM stop the application as Ctrl-C does; neither of them prints a stack trace.

    A second Ctrl-C ends an application at once that gives its calls time to end. A second SIGTERM does not: some
    supervisors send it to all processes, and so does the JVM of spark-submit to the Python program.

    Args:
        stop: makes the application end, and returns whether it notices that by itself; if not, it is interrupted. May be
            called from any thread.
        grace: how much time the application gives its calls.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _frame: FrameType | None) -> None:
        is_second = number == signal.SIGINT and number in _received
        _received.append(number)
        # The exception is lost if a finalizer happens to run just then.
        if not stop() or is_second:
            raise KeyboardInterrupt

    _received.clear()
    handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, interrupt)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not the program's own
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    patience = grace + _END_TIME
    try:
        with _waiting_jvm(patience) if is_submitted() else nullcontext():
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _waiting_jvm(patience: timedelta) -> AbstractContextManager[None]:
    """Make a signal to spark-submit's JVM stop the Python program that the JVM has started.

    Perhaps only the JVM gets the signal. The program needs Spark until its calls have ended, and its output goes through
    that JVM: so the JVM waits until the program has ended, but for ``patience`` at most.
    """

    def end_program() -> None:
        if not _received:
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(patience.total_seconds())

    return before_spark_stops(end_program, patience)
