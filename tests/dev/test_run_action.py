# SPDX-License-Identifier: Apache-2.0
"""``statefun dev run`` as users see it: a new project that is changed while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import wait
from local_servers import free_port
from soak_processes import arguments, processes

from statefun.cli import main
from statefun.dev.records import send_record

pytestmark = pytest.mark.spark


class Developing:
    """A project, and the command that runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.admin = free_port(), free_port()
        self._out = folder.parent / "out"
        environment = {name: value for name, value in os.environ.items() if name != "KAFKA_ADDRESS"}
        environment.pop("PYSPARK_SUBMIT_ARGS")
        environment["BROWSER"] = "echo browser at %s"
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "statefun.cli", "dev", "run"),
                    *("--port", str(self.port), "--admin", str(self.admin), "--open"),
                ],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def printed(self) -> list[str]:
        """Return all lines of the command and the application."""
        return self._out.read_text().splitlines()

    def wait_for(self, *lines: str) -> None:
        """Wait until each of some lines was printed."""

        def are_printed() -> bool:
            assert self.process.poll() is None, self.printed()
            return all(any(line in each for each in self.printed()) for line in lines)

        wait(are_printed)

    def wait_for_start(self, number: int) -> None:
        """Wait until the application was started so many times: the ones before it have ended."""
        wait(lambda: sum("running 1 function" in line for line in self.printed()) == number)

    def send(self, key: str, value: str) -> None:
        """Send a record to the ingress."""
        send_record(f"localhost:{self.port}", "users", key, value)

    def kill_program(self) -> None:
        """Kill the process of the program, as the system does when memory is short."""
        program = str(self.folder / "app.py").encode()
        (pid,) = [pid for pid in descendants(self.process.pid) if program in arguments(pid)]
        os.kill(pid, signal.SIGKILL)

    def change(self, file: str, old: str, new: str) -> None:
        """Replace a text in a file of the project."""
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def descendants(root: int) -> set[int]:
    """Return the ids of all processes that a process has started, and those have started."""
    found, parents = {root}, {pid: each.parent for pid, each in processes().items()}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return found


@pytest.fixture
def developing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Developing]:
    """Run the command in a new project; end it with everything that it has started."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "shop"]) == 0
    developing = Developing(tmp_path / "shop")
    started: set[int] = set()
    try:
        yield developing
        started = descendants(developing.process.pid)
        developing.process.send_signal(signal.SIGINT)
        assert developing.process.wait() == 128 + signal.SIGINT
    finally:
        developing.process.kill()
        developing.process.wait()
    wait(lambda: not started & processes().keys())


@pytest.mark.long(minutes=2.1)
def test_changes_take_effect_and_the_state_stays(developing: Developing) -> None:
    """A mistake in the module, or in the program, is shown, and the next change ends it."""
    developing.wait_for("created topic users")
    developing.wait_for_start(1)
    developing.wait_for(f"browser at http://127.0.0.1:{developing.admin}")
    developing.send("ada", "Ada")
    developing.wait_for("in  users  ada  Ada", "out greetings  ada  Hello Ada, visit 1")

    developing.change("app.py", "Hello", "Good day")
    developing.wait_for("changed: app.py; starting again")
    developing.wait_for_start(2)
    developing.send("ada", "Ada")
    developing.wait_for("out greetings  ada  Good day Ada, visit 2")

    developing.change("module.yaml", "targets:", "tragets:")
    developing.wait_for("did you mean 'targets'?", "waiting for a change of the files")
    developing.change("module.yaml", "tragets:", "targets:")
    developing.change("app.py", "import statefun\n", "import statefun\nimport nothing\n")
    developing.wait_for("No module named 'nothing'", "the program has ended with exit code 1")
    developing.change("app.py", "import nothing\n", "")
    developing.send("ada", "Ada")
    developing.wait_for("out greetings  ada  Good day Ada, visit 3")

    developing.kill_program()
    developing.wait_for("the program has ended with exit code -9")
    developing.change("app.py", "Good day", "Hi")
    developing.send("ada", "Ada")
    developing.wait_for("out greetings  ada  Hi Ada, visit 4")
    assert sum(line.startswith("browser at") for line in developing.printed()) == 1
