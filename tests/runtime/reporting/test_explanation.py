# SPDX-License-Identifier: Apache-2.0
"""Errors of tasks, which reach the driver inside the text of one of Spark's errors."""

from __future__ import annotations

from statefun import ConnectorError
from statefun.runtime.reporting.explanation import error_of_task

SPARKS_TEXT = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:
Traceback (most recent call last):
  File "/app/orders.py", line 7, in read
    raise {error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
"""


def test_the_code_decides_about_the_class_of_a_tasks_error() -> None:
    """A connector's own class, which the driver may not know, becomes the class of its code."""
    text = SPARKS_TEXT.format(error="\norders.LateError: [SF510] stream orders answers too late")

    error = error_of_task(text)

    assert type(error) is ConnectorError
    assert error.message == "stream orders answers too late"


def test_other_errors_of_tasks_have_no_code() -> None:
    """Spark's own text explains them."""
    assert error_of_task(SPARKS_TEXT.format(error="\nKeyError: '[SF510]'")) is None
