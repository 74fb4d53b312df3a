# SPDX-License-Identifier: Apache-2.0
"""The JVM in which Spark runs, through py4j.

From ``pyspark/core/context.py``, ``pyspark/java_gateway.py`` and py4j, as of 4.2.0: PySpark keeps
one gateway per process, launches it with the first context, and joins spark-submit's gateway.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started

JvmError: type[Exception] = Py4JError
"""The errors of a call when the JVM fails; a JVM that has ended may also cause ``OSError``."""
JVM_GONE: tuple[type[Exception], ...] = (Py4JNetworkError, ConnectionError)
"""The errors of a call to a JVM that had ended before the call."""


def jvm() -> Any:
    """Return the JVM's packages; connect to the JVM, or launch it, if that has not happened yet."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - it has no public name
    return SparkContext._jvm  # noqa: SLF001 - as above


def accept_calls() -> None:
    """Enable calls of Python objects from the JVM."""
    jvm()
    gateway = SparkContext._gateway  # noqa: SLF001 - it has no public name
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call] # as pyspark has it


def new_array(class_: Any, items: Sequence[Any]) -> Any:
    """Return a Java array of ``class_``."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - it has no public name
    array = gateway.new_array(class_, len(items))
    for index, item in enumerate(items):
        array[index] = item
    return array


def spark_conf() -> dict[str, str]:
    """Return Spark's configuration, before or after a session was made."""
    jvm()  # joins spark-submit's JVM, whose properties SparkConf then reads
    active = SparkContext._active_spark_context  # noqa: SLF001 - it has no public name
    return dict((active.getConf() if active else SparkConf()).getAll())


def live_conf() -> Any:
    """Return the configuration that the running context itself uses: changes take effect at once.

    ``SparkContext.conf`` is no copy, unlike ``getConf``; ``SparkEnv`` has the same object.
    """
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - as above
    return context._jsc.sc().conf()  # noqa: SLF001 - as above


def is_submitted() -> bool:
    """Return whether spark-submit runs the program, so that the JVM exists before the program.

    ``PythonRunner.scala`` sets the variable.
    """
    return "PYSPARK_GATEWAY_PORT" in os.environ
