# SPDX-License-Identifier: Apache-2.0
"""Makes Hadoop's local file system, with which Spark writes checkpoints, faster.

``FileSystem.getLocal`` keeps one instance for the process, a ``FilterFileSystem`` around a
``RawLocalFileSystem`` (Hadoop 3.5, as in Spark 4.2.0).
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from statefun.runtime.spark_internals.java_source import java_class
from statefun.runtime.spark_internals.jvm import JVM_GONE, JvmError, jvm

logger = logging.getLogger("statefun")

_CLASS = "LocalFiles"
_SPECIAL_BITS = 0o7000
"""The setuid, setgid and sticky bits of a file's mode: chmod keeps them on a folder."""
_SOURCE = f"""
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {_CLASS} extends RawLocalFileSystem {{
    public void setPermission(Path path, FsPermission permission) throws IOException {{
        java.nio.file.Path file = pathToFile(path).toPath();
        int mode = ((Integer) Files.getAttribute(file, "unix:mode")).intValue();
        if (permission.getStickyBit() || (mode & {_SPECIAL_BITS}) != 0) {{
            super.setPermission(path, permission);
        }} else {{
            Files.setPosixFilePermissions(
                file, PosixFilePermissions.fromString(permission.toString()));
        }}
    }}
}}
"""


def start_no_processes(session: SparkSession) -> None:
    """Make Hadoop set the permissions of local files without a process ``chmod`` for each new file.

    Hadoop's native library would do the same, but PySpark does not ship it. If the Java class for this cannot
    be made, or another file system than Hadoop's is set for local files, nothing changes.
    """
    local = _local_files(session)
    if local.getRawFileSystem().getClass().getName() != "org.apache.hadoop.fs.RawLocalFileSystem":
        return
    try:
        _replace_raw(local)
    except JVM_GONE:
        raise
    except (JvmError, TypeError):  # py4j takes a class that does not exist for a package
        logger.debug(
            "Hadoop starts a process for the permissions of each new local file, which is slow: "
            "statefun's class for them cannot be made",
            exc_info=True,
        )


def _replace_raw(local: Any) -> None:
    packages, conf = jvm(), local.getConf()
    class_ = java_class(_CLASS, _SOURCE, local.getClass().getClassLoader())
    files = packages.org.apache.hadoop.util.ReflectionUtils.newInstance(class_, conf)
    files.initialize(packages.java.net.URI("file:///"), conf)
    files.setWorkingDirectory(local.getWorkingDirectory())
    filter_ = packages.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem")
    field = filter_.getDeclaredField("fs")
    field.setAccessible(True)
    field.set(local, files)


def write_no_checksums(session: SparkSession) -> None:
    """Make Hadoop write local files without an additional file with checksums for each.

    Existing files with checksums are still read and replaced.
    """
    _local_files(session).setWriteChecksum(False)


def _local_files(session: SparkSession) -> Any:
    """Return the object of Hadoop's local file system."""
    state = session._jsparkSession.sessionState()  # noqa: SLF001 - it has no public name
    return jvm().org.apache.hadoop.fs.FileSystem.getLocal(state.newHadoopConf())
