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
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

_FOLDER = Path(__file__).parents[1] / "build"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The compiler and the collector that have the least to start; an archive fits one collector."""


def java_options() -> str:
    """Return the options of a driver's JVM; the first call of all makes the archive."""
    return archived("spark", _run_query)


def archived(name: str, run: Callable[[str], None]) -> str:
    """Return options of a JVM with which it takes an archive, made now if it is missing.

    Args:
        name: of the archive.
        run: runs a program that loads the classes, in a JVM that ends by itself, with these
            options.
    """
    archive = _FOLDER / f"{name}-{pyspark.__version__}.jsa"
    if not archive.exists():
        _FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            made = Path(folder) / archive.name
            run(f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={made} -Xlog:disable")
            made.replace(archive)  # whole or not at all: others may be making it as well
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive}"


def _run_query(options: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, __file__, folder],
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": options,
            },
            stderr=subprocess.DEVNULL,
            check=True,
        )


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
