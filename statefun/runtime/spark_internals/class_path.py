# SPDX-License-Identifier: Apache-2.0
"""The class path of a running Spark, and the jars that PySpark comes with.

Based on ``SessionResourceLoader.addJar`` (``SessionState.scala``) and ``SharedState.jarClassLoader`` of Spark
4.2.0, which implement the statement ADD JAR, and on ``SparkSubmit.runMain``, which makes the parent of their loader.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from statefun.runtime.spark_internals.jvm import JvmError, jvm
from statefun.sdk.errors import PlatformError

KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
"""The class of Spark's connector to Kafka that makes sources of the format kafka."""

S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
"""The class of Hadoop's access to S3-compatible stores."""


def has_class(name: str) -> bool:
    """Return whether the class with this name is on the class path of the driver."""
    try:
        jvm().java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except JvmError:
        return False
    return True


def add_jars(session: SparkSession, jars: Iterable[Path]) -> None:
    """Put jars on the class path of the driver and of all executors.

    This does not use the statement ADD JAR: it does not accept blanks and quotes in a path, and the threads of the driver that
    read the errors of tasks do not find its classes. They lose an error that has such a class, together with its text.
    """
    packages = jvm()
    inner = session._jsparkSession  # noqa: SLF001 - the statement has no form without its limits
    own = inner.sharedState().jarClassLoader()
    shared = _outermost(own)
    for jar in jars:
        uri = packages.java.io.File(str(jar)).toURI()
        inner.sparkContext().addJar(uri.toString())
        shared.addURL(uri.toURL())
    packages.java.lang.Thread.currentThread().setContextClassLoader(own)


def _outermost(loader: Any) -> Any:
    """Return the highest ancestor of a class loader to which jars can be added, or the loader itself.

    It is spark-submit's loader: each thread of the driver has this loader, or one that is descended from it.
    """
    takes_jars = jvm().java.lang.Class.forName("org.apache.spark.util.MutableURLClassLoader")
    while takes_jars.isInstance(loader.getParent()):
        loader = loader.getParent()
    return loader


def spark_jars_folder() -> Path:
    """Return the folder with the jars of the Spark that would start.

    Raises:
        PlatformError: if no such folder has the jar of Ivy.
    """
    package = Path(pyspark.__file__).parent
    homes = [package, package.parents[1]]  # an installed package, or python/ of a distribution
    if "SPARK_HOME" in os.environ:
        homes.insert(0, Path(os.environ["SPARK_HOME"]))
    for home in homes:
        if any((home / "jars").glob("ivy-*.jar")):
            return home / "jars"
    raise PlatformError(
        f"none of the folders {', '.join(map(str, homes))} has a folder jars with Spark's jar of Ivy; "
        "install pyspark again with 'pip install --force-reinstall pyspark', "
        "or correct the environment variable SPARK_HOME",
    )
