# SPDX-License-Identifier: Apache-2.0
"""Servers on this machine: a port for one, and a connection to it."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import attrs
from patience import SECONDS

_POLL_SECONDS = 0.02

# Below the range from which systems pick ports for outgoing connections, and apart from the ports of
# the embedded broker: a port that is free now must still be free when its server starts.
_PORTS = range(10_000, 20_000)
_PORTS_OF_A_PROCESS = 1_000
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on, which no other process of the tests is given."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _PORTS.start + worker * _PORTS_OF_A_PROCESS % len(_PORTS)
    own = [port for port in range(first, first + _PORTS_OF_A_PROCESS) if port not in _given]
    for port in random.SystemRandom().sample(own, len(own)):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
    raise AssertionError(f"no port from {first} on is free")


def connected(port: int, server: subprocess.Popen[str]) -> HTTPConnection:
    """Return a connection to a server, once it listens."""
    while True:
        assert server.poll() is None
        client = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            client.connect()
        except ConnectionRefusedError:
            time.sleep(_POLL_SECONDS)
            continue
        return client


@attrs.define
class ServedProgram:
    """``statefun serve`` with a program's functions, on one port over all its starts."""

    program: Path
    log: Path
    """The file that gets what all the processes print."""
    port: int = attrs.field(factory=free_port)
    options: Sequence[str] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)
    """What the process has besides the variables of the tests' process."""
    folder: Path | None = None
    """The working directory; None: that of the tests' process."""
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Where the functions are."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start the process, and wait until it listens."""
        command = [sys.executable, "-m", "statefun.cli", "serve", str(self.program)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *self.options],
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        connected(self.port, self.process).close()

    def kill(self) -> None:
        """End the process at once, if there is one."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()


@contextmanager
def running(server: ServedProgram) -> Iterator[subprocess.Popen[str]]:
    """Start a server, and end it after the block; yield the process of its first start."""
    try:
        server.start()
        assert server.process is not None
        yield server.process
    finally:
        server.kill()


@contextmanager
def served(folder: Path, port: int, program: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Serve the functions of a program with ``statefun serve``; yield the process, which listens."""
    file = folder / "served.py"
    file.write_text(program)
    server = ServedProgram(file, folder / "served.log", port, options, folder=folder)
    with running(server) as process:
        yield process
