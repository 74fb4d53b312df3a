# SPDX-License-Identifier: Apache-2.0
"""Functions of the published SDKs, each served by a process of its own language.

The programs beside this file serve one function each, ``com.example.languages/<language>``, which
does what its messages say: values of type ``com.example.languages/commands``, JSON lists of

- ``{"do": "add", "by": 1, "name": "a"}``: the total grows, and a record says so,
- ``{"do": "send", "to": "namespace/type", "id": "b", "commands": [...]}``,
- ``{"do": "after", "milliseconds": 9, "to": ..., "id": ..., "commands": [...], "token": "c"}``;
  the token may be left out,
- ``{"do": "cancel", "token": "c"}``,
- ``{"do": "remember", "text": "d"}``: for an hour; and ``{"do": "forget"}``,
- ``{"do": "recall", "name": "e"}``: a record with what is remembered,
- ``{"do": "fail", "text": "f"}``: the function raises an error.

A record goes to egress ``com.example.languages/out`` with the function's id as its key. It has the
name of its command and the function's address, as ``{"name": "a", "address": "namespace/type/id",
"total": 1}`` or with a ``note``, which is null when there is none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import final

import attrs
from local_servers import free_port

from statefun.runtime.spark.jars import MavenArtifact, java_command, resolve

SOURCES = Path(__file__).resolve().parent
BUILD = SOURCES.parents[1] / "build" / "languages"
NAMESPACE = "com.example.languages"

_START_SECONDS = 60
_POLL_SECONDS = 0.02


@attrs.frozen
class Language:
    """One language: how its program is built, and how it is run."""

    name: str
    tools: tuple[str, ...]
    """The programs that it takes to build and run it."""
    pinned: tuple[str, ...]
    """What the program needs, where no file beside it says so."""
    make: Callable[[Path], object]
    """Builds in a folder with a copy of the sources."""
    run: Callable[[Path], list[str | Path]]
    """Returns the command that runs what was built there, without its argument."""
    folder: Path = SOURCES
    """Where the folder with its sources is."""

    @property
    def typename(self) -> str:
        """The type of its function."""
        return f"{NAMESPACE}/{self.name}"

    @property
    def missing_tools(self) -> list[str]:
        """The tools that this machine does not have."""
        return [tool for tool in self.tools if shutil.which(tool) is None]

    def command(self, port: int) -> list[str | Path]:
        """Return the command that serves on a port; the program is built when it is not."""
        folder = BUILD / self.name
        BUILD.mkdir(parents=True, exist_ok=True)
        with Path(f"{folder}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes of tests, one builds it
            complete, digest = folder / "complete", self._digest()
            if not complete.exists() or complete.read_text() != digest:
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(self.folder / self.name, folder)
                self.make(folder)
                complete.write_text(digest)
        return [*self.run(folder), str(port)]

    def _digest(self) -> str:
        digest = hashlib.sha256(repr(self.pinned).encode())
        for source in sorted((self.folder / self.name).glob("*.*")):
            digest.update(f"{source.name} {source.stat().st_size}\n".encode())
            digest.update(source.read_bytes())
        return digest.hexdigest()


_PYTHON = ("apache-flink-statefun==3.3.0", "protobuf==3.20.3", "uvicorn==0.54.0")
_JAVA = (
    "org.apache.flink:statefun-sdk-java:3.3.0",
    "com.fasterxml.jackson.core:jackson-databind:2.20.0",
)
# The SDK's own jar contains its classes; by itself this version of it cannot be downloaded.
_JAVA_UNPUBLISHED = ("org.apache.flink:statefun-protocol-shaded",)


def _make_python(folder: Path) -> None:
    _run(folder, sys.executable, "-m", "venv", "venv")
    _run(folder, "venv/bin/python", "-m", "pip", "install", "--quiet", *_PYTHON)


def _run_python(folder: Path) -> list[str | Path]:
    return [folder / "venv" / "bin" / "python", "-E", folder / "server.py"]


def _java_class_path(folder: Path) -> str:
    artifacts = [MavenArtifact.parse(coordinates) for coordinates in _JAVA]
    return os.pathsep.join(map(str, (folder, *resolve(artifacts, exclude=_JAVA_UNPUBLISHED))))


def _make_java(folder: Path) -> None:
    _run(folder, "javac", "-cp", _java_class_path(folder), "CommandServer.java")


def _run_java(folder: Path) -> list[str | Path]:
    # a short-lived process on a few cores: start quickly, leave the cores to others
    options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [java_command(), *options, "-cp", _java_class_path(folder), "CommandServer"]


def make_javascript(folder: Path) -> None:
    """Install what a package of npm's needs."""
    _run(folder, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund")


def run_javascript(folder: Path) -> list[str | Path]:
    """Return the command that runs a package's server."""
    return ["node", folder / "server.js"]


def _make_go(folder: Path) -> None:
    _run(folder, "go", "build", "-buildvcs=false", "-o", "server", ".")


def _run_go(folder: Path) -> list[str | Path]:
    return [folder / "server"]


def _run(folder: Path, *command: str) -> None:
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{made.stdout}{made.stderr}")


PYTHON = Language("python", (), _PYTHON, _make_python, _run_python)
JAVA = Language("java", ("java", "javac"), _JAVA, _make_java, _run_java)
JAVASCRIPT = Language("javascript", ("node", "npm"), (), make_javascript, run_javascript)
GO = Language("go", ("go",), (), _make_go, _run_go)
LANGUAGES = (PYTHON, JAVA, JAVASCRIPT, GO)


@final
class Server:
    """A process that serves the function of a language, on one port over all its starts."""

    process: subprocess.Popen[bytes]

    def __init__(self, language: Language, results_topic: str = "results") -> None:
        """Describe it; ``with`` starts and ends it."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._language = language
        self._environment = os.environ | {"RESULTS_TOPIC": results_topic}
        self._log = BUILD / f"{language.name}-{self.port}.log"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.terminate()
        self.process.wait()
        if kind is None:  # else somebody wants to read it
            self._log.unlink()

    def start(self) -> None:
        """Start the process, and wait until it listens; again after ``kill``."""
        command = self._language.command(self.port)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        try:
            self._wait()
        except BaseException:  # Ctrl-C too must leave no process behind
            self.kill()
            raise

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while "ready" not in (printed := self._log.read_text("utf-8", "replace")).splitlines():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._language.name} does not serve; it printed\n{printed}")
            time.sleep(_POLL_SECONDS)
