# SPDX-License-Identifier: Apache-2.0
"""Spark's logs and state files in a store: a class of ours, which Spark calls for each of these files.

Spark's own classes do not suit a store. Some write a file under a second name and rename it: in an object store, this
copies the file, and does not refuse a second writer. The others do not report that a file was not written. The class
of ``store_manager_class`` creates a file of a log in one request, which an object store refuses if the file exists; in
HDFS it renames a complete file, which HDFS refuses likewise. In an object store, a list or a folder costs a request,
too: so the class asks for files by their names, and creates no folders.

To each commit, it adds the id of the run that commits the batch, as the field ``statefunRun`` in the line of JSON;
Spark ignores fields that it does not know.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from statefun.runtime.spark_internals.class_path import add_jars, has_class
from statefun.runtime.spark_internals.jvm import JvmError, jvm
from statefun.runtime.spark_internals.store_manager_class import CLASS, MANAGER_SOURCE, RUN_SETTING

_given: dict[str, set[str]] = {}
"""The keys of the settings that earlier runs of this process have given to Hadoop, by bucket."""


def keep_checkpoint_in_store(session: SparkSession, run: str) -> None:
    """Make the queries of ``session`` write their checkpoints to a store through the Java class of this package.

    Args:
        session: the session; Hadoop's file system for the store must be on its class path.
        run: the id of the run, which each entry of the commit log names; empty to name none.
    """
    if not has_class(CLASS):
        folder = Path(tempfile.mkdtemp(prefix="statefun-classes-"))
        atexit.register(
            shutil.rmtree, folder, ignore_errors=True
        )  # executors that join later load it, too
        add_jars(session, [_jar(folder)])
    for key, value in {
        "spark.sql.streaming.checkpointFileManagerClass": CLASS,
        # A second file for each file; the store has checksums of its own.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        RUN_SETTING: run,
    }.items():
        session.conf.set(key, value)


def configure_hdfs(session: SparkSession) -> None:
    """Let Hadoop ask more often whether DataNodes have reported a new file, unless the user has chosen how often.

    By default, its first pause before it asks again is 400 ms, and each micro-batch has several such pauses; here, the
    first pause is 10 ms. Each further pause is twice as long, in both cases.
    """
    context = session._jsparkSession.sparkContext()  # noqa: SLF001 - it has no public name
    configuration = context.hadoopConfiguration()
    for key, value in {"initial.delay.ms": "10", "retries": "11"}.items():
        name = f"dfs.client.block.write.locateFollowingBlock.{key}"
        if _is_free(configuration, name):
            configuration.set(name, value)


def configure_bucket(session: SparkSession, bucket: str, hadoop: dict[str, str]) -> None:
    """Give Hadoop the settings of a bucket; the settings of other buckets stay as they are.

    Args:
        session: the session; Hadoop's file system for the store must be on its class path.
        bucket: the name of the bucket.
        hadoop: Hadoop's settings for the bucket, without the prefix ``fs.s3a.``, for those keys that the user has not set.
    """
    context = session._jsparkSession.sparkContext()  # noqa: SLF001 - it has no public name
    configuration = context.hadoopConfiguration()
    # It was made before the jars were added, and looks for Hadoop's file systems in its own class path.
    configuration.setClassLoader(jvm().java.lang.Thread.currentThread().getContextClassLoader())
    prefix = f"fs.s3a.bucket.{bucket}."
    own = _given.setdefault(bucket, set())
    wanted = {
        f"{prefix}{key}": value
        for key, value in hadoop.items()
        if _is_free(configuration, f"fs.s3a.{key}")
        and (f"{prefix}{key}" in own or configuration.get(f"{prefix}{key}") is None)
    }
    if all(configuration.get(key) == wanted.get(key) for key in own | wanted.keys()):
        return
    if own:  # Hadoop keeps one connection for each bucket, whatever the settings are now
        uri = jvm().java.net.URI(f"s3a://{bucket}/")
        jvm().org.apache.hadoop.fs.FileSystem.get(uri, configuration).close()
    for key in own - wanted.keys():
        configuration.unset(key)
    for key, value in wanted.items():
        configuration.set(key, value)
    _given[bucket] = {*wanted}


def _is_free(configuration: Any, key: str) -> bool:
    """Return whether the user has not set a key of Hadoop's."""
    sources = configuration.getPropertySources(key)
    return configuration.get(key) is None or sources is None or sources[-1].endswith("-default.xml")


def commits_of(run: str) -> Callable[[], int]:
    """Return a function that returns the newest batch that a run has committed in this JVM.

    It returns -1 if there is none, or if the JVM has ended. It makes no request to the store.
    """
    loader = jvm().java.lang.Thread.currentThread().getContextClassLoader()
    commits = loader.loadClass(CLASS).getField("COMMITS").get(None)

    def newest() -> int:
        try:
            found = commits.get(run)
        except (JvmError, OSError):
            return -1
        return -1 if found is None else int(found)

    return newest


def _jar(folder: Path) -> Path:
    """Compile the manager's Java class, and return a jar that contains it."""
    packages: Any = jvm()
    compiler = packages.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(packages.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(MANAGER_SOURCE)
    codes = compiler.getBytecodes()
    jar = folder / "statefun-store-manager.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name in codes:
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(codes[name]))
    return jar
