# SPDX-License-Identifier: Apache-2.0
"""Servers on this machine: a port for one, and a connection to it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from patience import SECONDS

_POLL_SECONDS = 0.02


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


@contextmanager
def served(folder: Path, port: int, program: str) -> Iterator[subprocess.Popen[str]]:
    """Serve the functions of a program with ``statefun serve``; yield the process, which listens."""
    (folder / "served.py").write_text(program)
    command = [sys.executable, "-m", "statefun.cli", "serve", "served.py", "--port", str(port)]
    with (folder / "served.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True)
    try:
        connected(port, process).close()
        yield process
    finally:
        process.kill()
        process.wait()
