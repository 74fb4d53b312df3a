# SPDX-License-Identifier: Apache-2.0
"""Spark's access to stores, for checkpoints there; for S3-compatible ones also Hadoop's jars and settings.

``hadoop-aws`` depends on a bundle of all of Amazon's services, of 686 MB. Without it, and with the parts for S3 alone,
it has 13 MB.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.object_store import credentials_of, endpoint_of, region_of
from statefun.runtime.spark.connector import artifact_names
from statefun.runtime.spark.jars import MavenArtifact, resolve
from statefun.runtime.spark_internals.class_path import S3A, add_jars, has_class, spark_jars_folder
from statefun.runtime.spark_internals.store_manager import (
    configure_bucket,
    configure_hdfs,
    keep_checkpoint_in_store,
)
from statefun.sdk.errors import PlatformError

logger = logging.getLogger("statefun")

_OLDEST = (3, 5)
"""The oldest Hadoop that can create an object only if there is none; it comes with the Spark whose classes this package extends."""
_SDK = "2.35.4"
_SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client")
_PATIENCE = {
    "connection.establish.timeout": "15s",
    "connection.timeout": "15s",
    "connection.request.timeout": "15s",
    "connection.part.upload.timeout": "2m",
}
"""How long Hadoop waits for an answer through a connection that may be dead, and how long a request with its attempts may
take. By default, a micro-batch waits a minute for each lost packet, and for lost content of a file up to 15 minutes."""


def use_store(session: SparkSession, checkpoint: Folder, run: str) -> None:
    """Make the queries of ``session`` write a checkpoint in a store, and never overwrite another driver's files.

    Args:
        session: the session.
        checkpoint: the checkpoint.
        run: the id of the run, which is added to each of its commits; empty to add none.

    Raises:
        PlatformError: if Spark's Hadoop is too old, or the jars cannot be downloaded.
    """
    version = hadoop_version()
    if version < _OLDEST:
        raise PlatformError(
            f"checkpoints in stores need Hadoop {'.'.join(map(str, _OLDEST))} or newer, but this Spark has Hadoop "
            f"{'.'.join(map(str, version))}: install PySpark 4.2, or use a local checkpoint"
        )
    if checkpoint.is_object_store:
        if not has_class(S3A):
            add_jars(session, s3a_jars(lambda text: logger.info("downloading %s", text)))
        configure_bucket(session, urlsplit(checkpoint.location).netloc, _settings(checkpoint))
    else:
        configure_hdfs(session)
    keep_checkpoint_in_store(session, run)


def s3a_jars(progress: Callable[[str], None] | None = None) -> tuple[Path, ...]:
    """Return the jars of Hadoop's access to S3-compatible stores, without jars that Spark itself has.

    Args:
        progress: as for ``jars.resolve``.

    Raises:
        PlatformError: as for ``jars.resolve``.
        ConfigurationError: as for ``jars.resolve``.
    """
    names = {name for jar in spark_jars_folder().glob("*.jar") for name in artifact_names(jar)}
    artifacts = [
        MavenArtifact(
            "org.apache.hadoop", "hadoop-aws", ".".join(map(str, (*hadoop_version(), 0)))
        ),
        *(MavenArtifact("software.amazon.awssdk", part, _SDK) for part in _SDK_PARTS),
    ]
    return resolve(artifacts, exclude={*names, "bundle"}, progress=progress)


def hadoop_version() -> tuple[int, ...]:
    """Return the first two numbers of the version of Spark's Hadoop."""
    jars = spark_jars_folder().glob("hadoop-client-api-*.jar")
    return next((tuple(map(int, re.findall(r"\d+", jar.name)[:2])) for jar in jars), (0, 0))


def _settings(checkpoint: Folder) -> dict[str, str]:
    """Return the settings of Hadoop for the bucket of a checkpoint: those that the URI and the environment give.

    The keys are without the prefix ``fs.s3a.``.
    """
    settings = {
        "performance.flags": "create,delete,mkdir,open",
        # Others need a further client, and a file of a checkpoint is read once from its beginning.
        "input.stream.type": "classic",
        **_PATIENCE,
    }
    endpoint, region = endpoint_of(checkpoint.location), region_of(checkpoint.location)
    if endpoint is not None:
        settings["endpoint"] = endpoint
        settings["path.style.access"] = "true"
        settings["connection.ssl.enabled"] = str(not endpoint.startswith("http:")).lower()
    if region or endpoint:
        settings["endpoint.region"] = region or "us-east-1"
    keys = ("access.key", "secret.key", "session.token")
    credentials = zip(keys, credentials_of(checkpoint.location), strict=True)
    return settings | {key: value for key, value in credentials if value}
