# SPDX-License-Identifier: Apache-2.0
"""The runtime of Apache Flink Stateful Functions 3.3, on this machine, for a test.

One JVM runs one job in a MiniCluster of Flink 1.16, with the program that the benchmarks use. Its
jars are downloaded once, and the program is compiled once; that takes ``javac`` on the PATH.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import final

from statefun.runtime.spark.jars import MavenArtifact, java_command, resolve

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "benchmarks" / "peers" / "flink"
BUILD = ROOT / "build" / "flink-statefun"

_MAIN = "org.apache.flink.statefun.flink.core.PeerMain"
_JARS = (  # those of pom.xml, beside the program
    "org.apache.flink:statefun-flink-core:3.3.0",
    "org.apache.flink:statefun-flink-io-bundle:3.3.0",
    "org.apache.flink:flink-clients:1.16.2",
    "org.apache.flink:flink-connector-kafka:1.16.2",
    "org.apache.flink:flink-statebackend-rocksdb:1.16.2",  # StateFun links to it, used or not
    "org.slf4j:slf4j-log4j12:1.7.32",
)
_OPENED = (  # packages that Flink 1.16 reflects on and Java 17 closes
    "java.lang java.lang.reflect java.lang.invoke java.io java.net java.nio java.math java.text "
    "java.time java.util java.util.concurrent java.util.concurrent.atomic "
    "java.util.concurrent.locks sun.net.util sun.nio.ch"
)
_PARALLELISM = 2
"""With more than one, messages between functions also take the way over the network."""
_OPTIONS = {
    "parallelism.default": _PARALLELISM,
    "taskmanager.numberOfTaskSlots": _PARALLELISM,
    "execution.checkpointing.interval": "200ms",
    "state.backend": "hashmap",
    "taskmanager.memory.managed.size": "16m",
    "restart-strategy": "none",  # a test wants to hear of a failure
    # StateFun refuses to start without these, in one class loader, too.
    "classloader.parent-first-patterns.additional": (
        "org.apache.flink.statefun;org.apache.kafka;com.google.protobuf"
    ),
}
_LINES_SHOWN = 40


def missing_tools() -> list[str]:
    """Return the programs that it takes and this machine does not have."""
    return [tool for tool in ("java", "javac") if shutil.which(tool) is None]


@final
class FlinkStateFun:
    """A job, which begins and ends with a block; the JVM ends with this process at the latest."""

    def __init__(self, module: str, folder: Path) -> None:
        """Describe it: the text of its module.yaml, and a folder of its own for its state."""
        self._module = module
        self._folder = folder

    def __enter__(self) -> FlinkStateFun:
        class_path = _class_path()
        self._folder.mkdir(exist_ok=True)
        command = [java_command(), "-Xmx1g", "-XX:+UseSerialGC"]
        command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()]
        command += [f"-Djava.io.tmpdir={self._folder}", "-cp", class_path, _MAIN]
        with tempfile.NamedTemporaryFile(
            prefix="job-", suffix=".log", dir=BUILD, delete=False
        ) as log:
            self._log = Path(log.name)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
            )
        assert self._process.stdin is not None
        try:
            print(self._write_options(), file=self._process.stdin, flush=True)
        except BaseException:  # Ctrl-C too must leave no process behind
            self._kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kill()
        if kind is None:  # else somebody wants to read it
            self._log.unlink()

    def check(self) -> None:
        """Make sure that the job runs.

        Raises:
            RuntimeError: if it has failed, with what was logged last.
        """
        if self._process.poll() is not None:
            lines = self.log().splitlines()[-_LINES_SHOWN:]
            raise RuntimeError("\n".join([f"the job has failed; {self._log} ends with", *lines]))

    def log(self) -> str:
        """Return what the JVM has printed."""
        return self._log.read_text("utf-8", "replace")

    def _write_options(self) -> Path:
        module, options = self._folder / "module.yaml", self._folder / "flink.properties"
        module.write_text(self._module, "utf-8")
        values = {
            **_OPTIONS,
            "io.tmp.dirs": self._folder,
            "state.checkpoints.dir": (self._folder / "checkpoints").as_uri(),
            "statefun.remote.module-name": module.as_uri(),
        }
        options.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        return options

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def _class_path() -> str:
    """Return where Java finds the program, which is compiled when it is new."""
    jars = os.pathsep.join(map(str, resolve([MavenArtifact.parse(each) for each in _JARS])))
    source, classes, compiled = SOURCES / "PeerMain.java", BUILD / "classes", BUILD / "compiled"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes of tests, one compiles it
        if not compiled.exists() or compiled.read_text() != digest:
            subprocess.run(["javac", "-d", classes, "-cp", jars, source], check=True)
            compiled.write_text(digest)
    return os.pathsep.join([str(SOURCES), str(classes), jars])  # SOURCES: its log4j.properties
