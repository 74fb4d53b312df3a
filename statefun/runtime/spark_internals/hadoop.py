# SPDX-License-Identifier: Apache-2.0
"""Hadoop's local file system, as Spark's checkpoints use it.

``FileSystem.getLocal`` keeps one instance for the process (Hadoop 3.4, as in Spark 4.2.0).
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from statefun.runtime.spark_internals.jvm import jvm


def write_no_checksums(session: SparkSession) -> None:
    """Keep the process from writing a file with checksums beside each local file.

    Existing files with checksums are read and replaced as before.
    """
    state = session._jsparkSession.sessionState()  # noqa: SLF001 - there is no public question for it
    jvm().org.apache.hadoop.fs.FileSystem.getLocal(state.newHadoopConf()).setWriteChecksum(False)
