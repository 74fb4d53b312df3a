# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pty
import select
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import SECONDS

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
PREPARED = {
    "bash": 'bind "set bell-style none"; eval "$(statefun completion bash)"; echo re""ady',
    "zsh": 'autoload -Uz compinit; compinit -u; eval "$(statefun completion zsh)"; echo re""ady',
    "fish": 'statefun completion fish | source; echo re""ady',
}


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, shell: str, folder: Path) -> None:
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "dumb",
            "ZDOTDIR": str(folder),
        }
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(SHELLS[shell][0], SHELLS[shell], environment)  # noqa: S606 - no shell around the shell
        self._shown = ""

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str) -> None:
        """Wait until the terminal has shown a text, and forget what it has shown until then."""
        deadline = time.monotonic() + SECONDS
        while text not in self._shown:
            assert time.monotonic() < deadline, self._shown
            if select.select([self._terminal], [], [], 1)[0]:
                self._shown += os.read(self._terminal, 65536).decode(errors="replace")
        self._shown = self._shown.partition(text)[2]

    def close(self) -> None:
        """Hang up."""
        os.close(self._terminal)
        os.waitpid(self._pid, 0)


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """Start a shell that completes the words of ``statefun``."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    (tmp_path / "an-application.py").touch()
    shell = Terminal(request.param, tmp_path)
    shell.type(f"{PREPARED[request.param]}\n")
    shell.wait_for("ready")
    yield shell
    shell.close()


def test_shells_complete_commands_actions_options_and_files(terminal: Terminal) -> None:
    """One Tab completes a word that is certain, in a real shell."""
    for typed, completed in [
        ("statefun vali", "date "),
        ("--conn", "ect "),
        ("an-app", "lication.py"),
    ]:
        terminal.type(f"{typed}\t")
        terminal.wait_for(completed)
    terminal.type("\x15statefun dlq rep\t")
    terminal.wait_for("lay")
