# SPDX-License-Identifier: Apache-2.0
"""Finds the jars of Spark's Kafka connector, in the version that fits the installed Spark."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

from statefun.runtime.spark.jars import (
    MavenArtifact,
    NotPublishedError,
    is_cached,
    resolve,
)
from statefun.runtime.spark_internals.class_path import spark_jars_folder
from statefun.sdk.errors import PlatformError

logger = logging.getLogger("statefun")

TESTED = "4.2.0"
"""The PySpark release with which statefun is tested; its connector is published."""

_CONNECTOR = "spark-sql-kafka-0-10_2.13"
# Maven Central lacks the provider for some releases of the connector. The connector uses only
# classes of it that are equal in all of Spark 4; only a log line about Kerberos tokens has changed.
_PROVIDER = MavenArtifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0")


def spark_kafka_connector(
    progress: Callable[[str], None] | None = None, *, spark: str = pyspark.__version__
) -> tuple[Path, ...]:
    """Return the jars of Spark's Kafka connector, without jars that Spark itself has.

    The Maven repository does not have a connector for every release of Spark. The connector of an earlier
    release of the same minor version works as well.

    Args:
        progress: As for ``jars.resolve``.
        spark: The version of Spark.

    Returns:
        The paths of the jars; no path if the connector is among Spark's own jars.

    Raises:
        PlatformError: The repository has no connector that fits, or as for ``jars.resolve``.
        ConfigurationError: As for ``jars.resolve``.
    """
    shipped_names = {
        name for jar in spark_jars_folder().glob("*.jar") for name in artifact_names(jar)
    }
    if _CONNECTOR in shipped_names:
        return ()
    exclude = {*shipped_names, _PROVIDER.artifact}
    connectors = [
        MavenArtifact("org.apache.spark", _CONNECTOR, version)
        for version in _fitting_versions(spark)
    ]
    # A cached version needs no network, whichever it is.
    connectors.sort(key=lambda connector: not is_cached([connector], exclude=exclude))
    for connector in connectors:
        version = connector.version
        try:
            jars = resolve([connector], exclude=exclude, progress=progress)
        except NotPublishedError:
            continue
        if version != spark:
            logger.info(
                "Spark's Kafka connector is not published for PySpark %s; using the connector of PySpark %s",
                spark,
                version,
            )
        # Ivy's file names start with the group of the artifact.
        known_names = {
            *shipped_names,
            *(name.rpartition("_")[2] for jar in jars for name in artifact_names(jar)),
        }
        return (*jars, *resolve([_PROVIDER], exclude=known_names, progress=progress))
    raise PlatformError(
        f"Spark's Kafka connector is not published for PySpark {spark}, nor for an earlier "
        f"release of the same minor version; run: pip install 'pyspark=={TESTED}'"
    )


def _fitting_versions(spark: str) -> Iterator[str]:
    """Yield the versions of the connector that fit a version of Spark, the nearest version first.

    >>> list(_fitting_versions("4.2.2"))
    ['4.2.2', '4.2.1', '4.2.0']
    >>> list(_fitting_versions("5.0.0.dev1"))
    ['5.0.0.dev1']
    """
    yield spark
    match = re.fullmatch(r"(\d+\.\d+)\.(\d+)", spark)
    if match is not None:
        yield from (f"{match[1]}.{patch}" for patch in reversed(range(int(match[2]))))


def artifact_names(jar: Path) -> list[str]:
    """Return the possible names of a jar's artifact: its version may begin after any dash before a digit.

    So ``log4j-1.2-api-2.25.4.jar`` may be a jar of the artifact ``log4j`` or of ``log4j-1.2-api``.
    """
    return [jar.name[: dash.start()] for dash in re.finditer(r"-(?=\d)", jar.name)]
