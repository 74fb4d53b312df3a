# SPDX-License-Identifier: Apache-2.0
"""Recognizes errors of Spark by their texts, where only the text has the reason.

Based on ``error-conditions.json`` and ``kafka-error-conditions.json`` of Spark 4.2.0, and on its JVM's report of a Python
daemon that has ended (``PythonWorkerFactory.scala``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark.errors import PySparkException

from statefun.sdk.errors import EngineError
from statefun.sdk.raised import line_of

_CONCURRENT = re.compile(
    r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using"
)
_STORAGE = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|ERROR_WRITING_TO_DISK"
    r"|(?:java\.nio\.file\.AccessDeniedException|org\.apache\.hadoop\.fs\.s3a\.\w+Exception): [^\n]{1,1000}"
)
_LOST_WORKER = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure"
)
_DAEMON = re.compile(r"Error from python worker:(.*?)(?:PYTHONPATH was:|\Z)", re.DOTALL)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")

_TIMESTAMP = re.compile(
    r"Record at topic (?P<topic>\S+) partition (?P<partition>\d+) offset (?P<offset>\d+) has timestamp value "
    r"(?P<timestamp>-?\d+) that overflows"
)


def is_concurrent_update(error: BaseException) -> bool:
    """Return whether an error of Spark says that a log already has the batch that Spark was about to write.

    >>> is_concurrent_update(ValueError("Multiple streaming queries are concurrently using s3a://b/c/offsets"))
    True
    """
    return _CONCURRENT.search(str(error)) is not None


def storage_failure(text: str) -> str | None:
    """Return the words in Spark's text about full, read-only or unreachable storage; None if there are none.

    >>> storage_failure("terminated with exception: /c/offsets/.7.tmp: No space left on device SQLSTATE: XXKST")
    'No space left on device'
    >>> storage_failure("java.nio.file.AccessDeniedException: s3a://b/c/commits/7: 403")
    'AccessDeniedException: s3a://b/c/commits/7: 403'
    """
    found = _STORAGE.search(text)
    return None if found is None else re.sub(r"^[a-z0-9.]+\.", "", found[0]).strip()


class UnreadableRecord(NamedTuple):
    """A record of Kafka whose timestamp Spark cannot convert to microseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int


def unreadable_record(text: str) -> UnreadableRecord | None:
    """Return the record that Spark could not read because of its timestamp, if Spark's text names one.

    >>> unreadable_record("Record at topic t partition 0 offset 7 has timestamp value 1764000000000000000 that overflows")
    UnreadableRecord(topic='t', partition=0, offset=7, timestamp=1764000000000000000)
    """
    found = _TIMESTAMP.search(text)
    if found is None:
        return None
    return UnreadableRecord(
        found["topic"], int(found["partition"]), int(found["offset"]), int(found["timestamp"])
    )


class LostWorkerError(EngineError):
    """A Python worker or an executor has ended during a task; another run may succeed.

    Args:
        work: the rest of a sentence that begins with "a Python worker has ended".
    """

    def __init__(self, work: str) -> None:
        super().__init__(
            f"a Python worker has ended {work}: look in Spark's log and the system's for the reason, such as too little "
            "memory or a crash in native code, and start again to continue from the last committed batch"
        )


def has_lost_worker(text: str) -> bool:
    """Return whether Spark's text says that a Python worker or an executor has ended during a task."""
    return _LOST_WORKER.search(text) is not None


def lacking_module(text: str) -> str | None:
    """Return the top-level module that a Python daemon could not import, if Spark's text names one.

    >>> lacking_module("Error from python worker: ModuleNotFoundError: No module named 'a.b'")
    'a'
    """
    daemon_error = _DAEMON.search(text)
    modules: list[str] = _NO_MODULE.findall(daemon_error[1]) if daemon_error else []
    return modules[-1] if modules else None


def first_words(error: BaseException) -> str:
    """Return the first line of an error of Spark, or the class and text of another error.

    >>> first_words(KeyError("batch"))
    "KeyError: 'batch'"
    """
    java = getattr(error, "java_exception", None)
    if java is not None:
        text = str(java.toString())
    else:
        text = str(error) if isinstance(error, PySparkException) else ""
    lines = text.strip().splitlines()  # Java's stack traces follow the first line
    return lines[0] if lines else line_of(error)
