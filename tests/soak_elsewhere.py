# SPDX-License-Identifier: Apache-2.0
"""The server of a soak's functions elsewhere, which comes and goes."""

from __future__ import annotations

import signal
from pathlib import Path

from local_servers import ServedProgram

_PROGRAM = Path(__file__).resolve().with_name("soak_served.py")


class Elsewhere:
    """A server at a port of its own, which nobody has started yet.

    Args:
        prefix: of the names of topics.
        log_file: for its output.
    """

    def __init__(self, prefix: str, log_file: Path) -> None:
        self._server = ServedProgram(_PROGRAM, log_file, environment={"SOAK_PREFIX": prefix})
        self.port = self._server.port

    def start(self) -> None:
        """Let the server answer: start it, or let it go on if it is frozen."""
        if self._server.process is None:
            self._server.start()
        else:
            self._server.process.send_signal(signal.SIGCONT)

    def freeze(self) -> None:
        """Let the server take connections, and answer nothing."""
        if self._server.process is not None:
            self._server.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End the server in the midst of anything."""
        self._server.kill()
