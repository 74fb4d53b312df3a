# SPDX-License-Identifier: Apache-2.0
"""Access to the JVM in which Spark runs, through py4j.

Based on ``pyspark/core/context.py``, ``pyspark/java_gateway.py`` and py4j, as of Spark 4.2.0: PySpark keeps
one gateway to a JVM per process. It launches a JVM with the first context, or connects to spark-submit's JVM.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started

JvmError: type[Exception] = Py4JError
"""The class of errors that calls to the JVM raise; if the JVM has ended, calls may also raise OSError."""
JVM_GONE: tuple[type[Exception], ...] = (Py4JNetworkError, ConnectionError)
"""The classes of errors that calls to the JVM raise if the JVM had ended before the call."""


def jvm() -> Any:
    """Return the JVM's packages; connect to the JVM, or launch it, if this process has no connection yet."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - it has no public name
    return SparkContext._jvm  # noqa: SLF001 - as above


def accept_calls() -> None:
    """Allow the JVM to call Python objects."""
    jvm()
    gateway = SparkContext._gateway  # noqa: SLF001 - it has no public name
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # as pyspark has it


def new_array(class_: Any, items: Sequence[Any]) -> Any:
    """Return a Java array of ``class_`` with the given items."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - it has no public name
    array = gateway.new_array(class_, len(items))
    for index, item in enumerate(items):
        array[index] = item
    return array


def spark_conf() -> dict[str, str]:
    """Return Spark's configuration; this may be called before or after a session is made."""
    jvm()  # joins spark-submit's JVM, whose properties SparkConf then reads
    active = SparkContext._active_spark_context  # noqa: SLF001 - it has no public name
    return dict((active.getConf() if active else SparkConf()).getAll())


def live_conf() -> Any:
    """Return the configuration object of the running context itself: changes of it take effect at once.

    ``SparkContext.conf`` in the JVM is no copy, unlike ``getConf``; ``SparkEnv`` has the same object.
    """
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - as above
    return context._jsc.sc().conf()  # noqa: SLF001 - as above


def heap() -> tuple[int, int]:
    """Return how many bytes of the JVM's heap are used, and how many it may have at most."""
    runtime = jvm().java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory()) - int(runtime.freeMemory()), int(runtime.maxMemory())


def is_submitted() -> bool:
    """Return whether spark-submit runs this program, so that the JVM has started before the program.

    This looks for an environment variable that ``PythonRunner.scala`` sets for such programs.
    """
    return "PYSPARK_GATEWAY_PORT" in os.environ
