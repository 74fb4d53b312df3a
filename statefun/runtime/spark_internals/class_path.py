# SPDX-License-Identifier: Apache-2.0
"""The class path of a running Spark, and the jars that PySpark comes with.

From ``SessionResourceLoader.addJar`` (``SessionState.scala``) and ``SharedState.jarClassLoader`` of Spark
4.2.0, which implement the statement ADD JAR.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from statefun.runtime.spark_internals.jvm import JvmError, jvm
from statefun.sdk.errors import PlatformError

KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
"""The class that makes sources of the format kafka, in the jar of Spark's connector."""


def has_class(name: str) -> bool:
    """Return whether the driver finds a class."""
    try:
        jvm().java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except JvmError:
        return False
    return True


def add_jars(session: SparkSession, jars: Iterable[Path]) -> None:
    """Put jars on the class path of the driver and of all executors.

    The statement ADD JAR takes neither blanks nor quotes in a path.
    """
    packages = jvm()
    inner = session._jsparkSession  # noqa: SLF001 - the statement has no form without its limits
    loader = inner.sharedState().jarClassLoader()
    for jar in jars:
        uri = packages.java.io.File(str(jar)).toURI()
        inner.sparkContext().addJar(uri.toString())
        loader.addURL(uri.toURL())
    packages.java.lang.Thread.currentThread().setContextClassLoader(loader)


def spark_jars_folder() -> Path:
    """Return the folder of the jars of the Spark that would start.

    Raises:
        PlatformError: There is no such folder that has Ivy.
    """
    package = Path(pyspark.__file__).parent
    homes = [package, package.parents[1]]  # an installed package, or python/ of a distribution
    if "SPARK_HOME" in os.environ:
        homes.insert(0, Path(os.environ["SPARK_HOME"]))
    for home in homes:
        if any((home / "jars").glob("ivy-*.jar")):
            return home / "jars"
    raise PlatformError(
        f"no folder of Spark's jars with Ivy in it below {', '.join(map(str, homes))}; "
        "install pyspark again with 'pip install --force-reinstall pyspark', "
        "or correct the environment variable SPARK_HOME",
    )
