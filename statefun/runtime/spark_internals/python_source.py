# SPDX-License-Identifier: Apache-2.0
"""Streaming sources in Python: the processes that plan them, and the Arrow schema of their rows.

From ``PythonStreamingSourceRunner.scala``, ``PythonPlannerRunner.scala``, ``pyspark/sql/worker/`` and
``pyspark/sql/streaming/python_streaming_source_runner.py`` of 4.2.0: Spark asks for offsets in a
separate process beside the driver, and makes the source in another process, which plans.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from statefun.runtime.spark_internals.jvm import live_conf

_REUSE = "spark.python.worker.reuse"
_PLANNER = "pyspark.sql.worker.plan_data_source_read"
"""The only argument of a process that plans."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of the batches that a source may yield."""
    return to_arrow_schema(schema)


@contextmanager
def planners_end() -> Iterator[None]:
    """Make the processes in which Spark plans a source end at once.

    Spark would keep them for a minute. Their daemon is Spark's own, and prints a traceback when
    Spark leaves them.
    """
    conf = live_conf()
    before = conf.get(_REUSE, "true")
    conf.set(_REUSE, "false")
    try:
        yield
    finally:
        conf.set(_REUSE, before)


def let_planner_go() -> None:
    """End this process as other programs do when Spark leaves it, if it is one that plans.

    Nobody reads its output then.
    """
    if sys.argv[1:] == [_PLANNER]:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def end_if_left() -> None:
    """End the process of offsets, if Spark has left it; call it when the process stops.

    Otherwise it would try to report to Spark, fail, and print the traceback.
    """
    if isinstance(sys.exc_info()[1], EOFError | ConnectionError):
        os._exit(0)
