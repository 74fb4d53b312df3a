# SPDX-License-Identifier: Apache-2.0
"""A small HDFS on this machine, and the checkpoints of tests in it: Hadoop's own NameNode, and one DataNode."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import attrs
from class_archive import SHORT_LIVED
from local_servers import free_port

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark.jars import MavenArtifact, java_command, resolve
from statefun.runtime.spark_internals.class_path import spark_jars_folder

_SERVERS = "org.apache.hadoop.hdfs.server"
_JARS = ("hadoop-client-*.jar", "slf4j-api-*.jar", "jcl-over-*.jar", "log4j-*.jar")
"""Spark's jars that the servers need; their own classes are in Hadoop's ``hadoop-client-minicluster``."""
_POLL_SECONDS = 0.2


@attrs.frozen
class Hdfs:
    """A running NameNode with one DataNode."""

    port: int
    name_node: subprocess.Popen[str] | None = None
    """The process of the NameNode; None if another process has started it."""

    def location(self, path: str) -> str:
        """Return the URI of a folder."""
        return f"hdfs://127.0.0.1:{self.port}/{path}"

    def folder(self, path: str) -> Folder:
        """Return a folder."""
        return Folder.at(self.location(path))


@contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    """Run an empty HDFS during the block; ``folder`` is for the servers' files."""
    port = free_port()
    _configure(folder, port)
    _run(folder, "namenode.NameNode", "-format", "-nonInteractive").wait()
    with ExitStack() as servers:
        name_node = servers.enter_context(_server(folder, "namenode.NameNode"))
        servers.enter_context(_server(folder, "datanode.DataNode"))
        running = Hdfs(port, name_node)
        _wait_until_writable(running, name_node, folder)
        yield running


def _configure(folder: Path, port: int) -> None:
    any_port = "127.0.0.1:0"
    settings = {
        "fs.defaultFS": f"hdfs://127.0.0.1:{port}",
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.namenode.http-address": any_port,
        "dfs.datanode.address": any_port,
        "dfs.datanode.http.address": any_port,
        "dfs.datanode.ipc.address": any_port,
        "dfs.replication": "1",
    }
    root = ET.Element("configuration")
    for name, value in settings.items():
        entry = ET.SubElement(root, "property")
        ET.SubElement(entry, "name").text = name
        ET.SubElement(entry, "value").text = value
    for name in ("core-site.xml", "hdfs-site.xml"):
        ET.ElementTree(root).write(folder / name)


def _class_path(folder: Path) -> str:
    (client,) = spark_jars_folder().glob("hadoop-client-api-*.jar")
    version = client.stem.rpartition("-")[2]
    servers = resolve(
        [MavenArtifact("org.apache.hadoop", "hadoop-client-minicluster", version)],
        exclude=(
            "hadoop-client-api",
            "hadoop-client-runtime",
            "snappy-java",
            "jsr305",
            "slf4j-api",
        ),
    )
    spark = (jar for pattern in _JARS for jar in sorted(spark_jars_folder().glob(pattern)))
    return os.pathsep.join(map(str, (folder, *servers, *spark)))


def _run(folder: Path, server: str, *arguments: str) -> subprocess.Popen[str]:
    options: Sequence[str] = ("-Xmx256m", *SHORT_LIVED.split(), "-cp", _class_path(folder))
    with (folder / "server.log").open("a") as log:
        return subprocess.Popen(
            [java_command(), *options, f"{_SERVERS}.{server}", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
        )


@contextmanager
def _server(folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    process = _run(folder, name)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_until_writable(running: Hdfs, name_node: subprocess.Popen[str], folder: Path) -> None:
    """Wait until the NameNode answers and knows its DataNode."""
    while True:
        try:
            running.folder("ready").write("a", b"content")
        except OSError:
            assert name_node.poll() is None, (folder / "server.log").read_text()
            time.sleep(_POLL_SECONDS)
        else:
            return
