# SPDX-License-Identifier: Apache-2.0
"""Texts of Spark's errors, where only the text tells the reason.

From ``error-conditions.json`` of Spark 4.2.0, and from its JVM's report of a Python daemon that
has ended (``PythonWorkerFactory.scala``).
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from statefun.sdk.raised import line_of

_CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE"
_DAEMON = re.compile(r"Error from python worker:(.*?)(?:PYTHONPATH was:|\Z)", re.DOTALL)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def is_concurrent_update(error: BaseException) -> bool:
    """Return whether a log has the batch that Spark was about to write."""
    return _CONCURRENT in str(error)


def lacking_module(text: str) -> str | None:
    """Return the top-level module whose lack has ended a Python daemon, if Spark's text tells.

    >>> lacking_module("Error from python worker: ModuleNotFoundError: No module named 'a.b'")
    'a'
    """
    said = _DAEMON.search(text)
    lacking: list[str] = _NO_MODULE.findall(said[1]) if said else []
    return lacking[-1] if lacking else None


def first_words(error: BaseException) -> str:
    """Return the first line of an error of Spark, and the class and text of another one.

    >>> first_words(KeyError("batch"))
    "KeyError: 'batch'"
    """
    java = getattr(error, "java_exception", None)
    if java is not None:
        text = str(java.toString())
    else:
        text = str(error) if isinstance(error, PySparkException) else ""
    lines = text.strip().splitlines()  # below the first one are Java's stack traces
    return lines[0] if lines else line_of(error)
