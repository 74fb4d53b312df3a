# SPDX-License-Identifier: Apache-2.0
"""Delays what Spark does when a signal ends its JVM.

Based on ``core/src/main/scala/org/apache/spark/util/ShutdownHookManager.scala`` and Hadoop's
``org.apache.hadoop.util.ShutdownHookManager``, as of Spark 4.2.0: Spark stops its context in a hook of Hadoop's manager, which
runs its hooks one after another, those with a higher priority first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from statefun.runtime.spark_internals.jvm import JvmError, accept_calls, jvm
from statefun.runtime.spark_internals.logs import silence
from statefun.sdk.times import in_milliseconds

_HOOKS = "org.apache.hadoop.util.ShutdownHookManager"
"""The logger of Hadoop's manager of hooks."""
_SPARKS_PRIORITY = 30
"""How much higher the priority of Spark's hook is than the one of Hadoop's own hooks."""
_MARGIN = timedelta(seconds=5)
"""How much longer than promised Hadoop waits for a hook: then it has ended, and does not block those that come later."""


@contextmanager
def before_spark_stops(hook: Callable[[], None], patience: timedelta) -> Iterator[None]:
    """During the block, let the JVM call a function when a signal ends the JVM; Spark stops when the function returns.

    Args:
        hook: the function, which runs in another thread of this process.
        patience: how long the function may take.
    """
    accept_calls()
    # It would log a stack trace when the function cannot return, as the process has ended.
    silence(_HOOKS)
    packages = jvm()
    hadoop = packages.org.apache.hadoop
    # A new object of Java's stands for the function each time that it is sent; the thread is the same one.
    thread = packages.java.lang.Thread(_Hook(hook))
    priority = hadoop.fs.FileSystem.SHUTDOWN_HOOK_PRIORITY + _SPARKS_PRIORITY + 1
    hooks = hadoop.util.ShutdownHookManager.get()
    milliseconds = packages.java.util.concurrent.TimeUnit.MILLISECONDS
    hooks.addShutdownHook(thread, priority, in_milliseconds(patience + _MARGIN), milliseconds)
    try:
        yield
    finally:
        with suppress(JvmError, OSError):  # a JVM that is ending does not remove hooks
            hooks.removeShutdownHook(thread)


class _Hook:
    """A function that the JVM can call."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run

    class Java:
        implements = ("java.lang.Runnable",)
