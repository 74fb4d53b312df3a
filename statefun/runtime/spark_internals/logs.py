# SPDX-License-Identifier: Apache-2.0
"""Keeps Spark, PySpark and py4j from printing logs and stack traces themselves.

Based on ``Logging.scala``, ``SparkUncaughtExceptionHandler.scala`` and ``pyspark/accumulators.py`` of Spark
4.2.0, ``ExecutionContext.scala`` of Scala 2.13, and py4j 0.10.9.9, whose module ``java_gateway`` logs failed
calls.
"""

from __future__ import annotations

import logging
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark import accumulators

from statefun.runtime.spark_internals.java_source import java_class
from statefun.runtime.spark_internals.jvm import jvm

# They log stack traces of errors that statefun gets as exceptions and shows in one line, and of calls
# that a signal has interrupted.
_SILENCED = ("org.apache.spark", "py4j")
SPARKS_LOGGERS = ("py4j", "pyspark")
"""The names of the Python loggers of PySpark and of py4j, its connection to the JVM."""
_GATEWAY_MODULE = "java_gateway"
_SILENCE_AT_END = """
public class SilenceAtEnd extends Thread {
    public void run() {
        System.setErr(new java.io.PrintStream(java.io.OutputStream.nullOutputStream()));
    }
}
"""
_ACCUMULATORS: list[Any] = [
    each
    for each in vars(accumulators).values()
    if isinstance(each, type) and issubclass(each, socketserver.BaseServer)
]
"""The classes of servers in this process to which the JVM keeps a connection (for accumulators)."""


def quieten_jvm() -> None:
    """Keep the JVM from printing logs and stack traces; must be called before a context logs its start."""
    packages = jvm()
    silence(*_SILENCED)
    log4j = packages.org.apache.logging.log4j
    log4j.core.config.Configurator.setRootLevel(log4j.Level.ERROR)
    # Java prints an exception that ends a thread, such as a query that a signal stops.
    # This handler of Spark's executors logs it instead, and ends a JVM that is out of memory.
    threads = packages.java.lang.Thread
    handler = packages.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    if handler.getClass().isInstance(threads.getDefaultUncaughtExceptionHandler()):
        return  # an earlier run has done it
    threads.setDefaultUncaughtExceptionHandler(handler)
    # Scala prints the failure of a future that nobody waits for, such as a message between processes
    # of Spark that ends later than its thread pool, while the JVM ends.
    loader = threads.currentThread().getContextClassLoader()
    hook = (
        java_class("SilenceAtEnd", _SILENCE_AT_END, loader).getConstructors()[0].newInstance(None)
    )
    packages.java.lang.Runtime.getRuntime().addShutdownHook(hook)


def silence(*names: str) -> None:
    """Keep loggers of the JVM from logging.

    Args:
        names: the names of the loggers; a package stands for the loggers of its classes.
    """
    packages = jvm()
    # With the first line that it logs, Spark replaces earlier settings by its defaults: log none here.
    packages.org.apache.spark.SparkConf(False).initializeLogIfNecessary(False, True)
    log4j = packages.org.apache.logging.log4j
    for name in names:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


@contextmanager
def silent_queries() -> Iterator[None]:
    """In the ``with`` block, keep PySpark from logging the errors of queries, which it raises as well.

    The logger's name is in ``pyspark/errors/exceptions/base.py``.
    """
    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def silent_connections() -> Iterator[None]:
    """Keep py4j and PySpark from printing stack traces when a connection to the JVM breaks.

    The exception that the failed call raises is enough. Otherwise, py4j would also log to its own loggers,
    which programs may show, and to the root logger, which prints unless it has a handler; and PySpark's
    server of accumulators would print. Several runs of a process may overlap: the run that ends last
    restores the settings.
    """
    _silence.begin()
    try:
        yield
    finally:
        _silence.end()


class _Silence:
    """Silences connections to the JVM while at least one run needs that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._changes = ExitStack()

    def begin(self) -> None:
        with self._lock:
            self._runs += 1
            if self._runs == 1:
                self._change()

    def end(self) -> None:
        with self._lock:
            self._runs -= 1
            if self._runs == 0:
                self._changes.close()

    def _change(self) -> None:
        root, bridge = logging.getLogger(), logging.getLogger("py4j")
        restore = self._changes.callback
        restore(bridge.setLevel, bridge.level)
        bridge.setLevel(logging.CRITICAL + 1)
        restore(root.removeFilter, _is_not_of_gateway)
        root.addFilter(_is_not_of_gateway)
        for server in _ACCUMULATORS:
            restore(delattr, server, "handle_error")
            server.handle_error = _handle_error
        if not root.handlers:  # else logging would add a handler that stays, and prints more
            handler = _LastResort(logging.WARNING)
            restore(root.removeHandler, handler)
            root.addHandler(handler)


_silence = _Silence()


class _LastResort(logging.Handler):
    """Prints log records as logging itself does while the root logger has no handler."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger.parent is not None:
            if logger.handlers:  # they print the record, or drop it
                return
            logger = logger.parent
        if logging.lastResort is not None:
            logging.lastResort.handle(record)


def _is_not_of_gateway(record: logging.LogRecord) -> bool:
    return record.module != _GATEWAY_MODULE


def _handle_error(server: socketserver.BaseServer, request: Any, address: Any) -> None:
    """Print the failure of a server of accumulators, unless it has failed because the JVM has ended."""
    if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
        socketserver.BaseServer.handle_error(server, request, address)
