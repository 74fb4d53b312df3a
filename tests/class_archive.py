# SPDX-License-Identifier: Apache-2.0
"""An archive of Spark's classes, with which every JVM of the tests starts in half the time.

Java would otherwise read, check and link some 15,000 classes anew for each of the many
applications that the tests start. See "Class Data Sharing" in the JDK's documentation: Java
takes an archive only if it is of the same Java and of the same jars, and else does without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

_ARCHIVE = Path(__file__).parents[1] / "build" / f"spark-{pyspark.__version__}.jsa"
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"


def java_options() -> str:
    """Return the options of a driver's JVM; the first call of all makes the archive."""
    if not _ARCHIVE.exists():
        _ARCHIVE.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
            made = Path(folder) / _ARCHIVE.name
            options = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
            done = subprocess.run(
                [sys.executable, __file__, folder],
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_SUBMIT_OPTS": options,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if not made.exists():
                raise RuntimeError(f"no archive of Spark's classes was made:\n{done.stdout}")
            made.replace(_ARCHIVE)  # whole or not at all: others may be making it as well
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={_ARCHIVE}"


def _load_classes(folder: str) -> None:
    """Run a small query of the kind that the tests run."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counted = (
        source.selectExpr("value % 2 AS key")
        .groupBy("key")
        .applyInPandasWithState(
            lambda key, frames, state: frames, "key LONG", "count LONG", "update", "NoTimeout"
        )
    )
    query = (
        counted.writeStream.foreachBatch(_collect)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .outputMode("update")
        .start()
    )
    while not query.lastProgress:
        query.awaitTermination(1)
    query.stop()
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - the archive is made when its Java ends
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _collect(frame: DataFrame, _number: int) -> None:
    frame.collect()


if __name__ == "__main__":
    _load_classes(sys.argv[1])
