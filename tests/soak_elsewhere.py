# SPDX-License-Identifier: Apache-2.0
"""The server of a soak's functions elsewhere, which comes and goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from local_servers import connected, free_port

_PROGRAM = Path(__file__).resolve().with_name("soak_served.py")


class Elsewhere:
    """A server at a port of its own, which nobody has started yet.

    Args:
        prefix: of the names of topics.
        log_file: for its output.
    """

    def __init__(self, prefix: str, log_file: Path) -> None:
        self.port = free_port()
        self._prefix = prefix
        self._log_file = log_file
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Let the server answer: start it, or let it go on if it is frozen."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            return
        command = [sys.executable, "-m", "statefun.cli", "serve", str(_PROGRAM)]
        with self._log_file.open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                env={**os.environ, "SOAK_PREFIX": self._prefix},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        connected(self.port, self._process).close()

    def freeze(self) -> None:
        """Let the server take connections, and answer nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End the server in the midst of anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
