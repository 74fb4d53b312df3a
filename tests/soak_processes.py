# SPDX-License-Identifier: Apache-2.0
"""The processes of a running application: its program, Spark's JVM, and Python workers.

The program starts the JVM, and the JVM starts the workers. Any of them may be killed or frozen
alone, and then the others go on for a while.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import attrs

PATIENCE = timedelta(minutes=5)
"""Nothing takes that long, unless it never comes."""
_DAEMON = b"statefun.runtime.dispatch.daemon"
_LAST_WORDS = re.compile(r"^statefun: (\[SF\d+\] .*)", re.MULTILINE)


@attrs.frozen
class Driver:
    """A program in a separate process session, with the processes that it has started."""

    program: subprocess.Popen[bytes]
    log_file: Path
    admin: int
    """The port of the admin API."""

    @property
    def is_running(self) -> bool:
        """Whether the program is there; a frozen one counts."""
        return self.program.poll() is None

    def jvm(self) -> int:
        """Return the process of Spark's JVM; 0 if there is none, or the program has ended."""
        return next(
            (
                number
                for number, process in processes().items()
                if process.parent == self.program.pid and arguments(number)[0].endswith(b"java")
            ),
            0,
        )

    def workers(self) -> list[int]:
        """Return the Python workers of a JVM that runs tasks itself."""
        return python_workers([self.jvm()])

    def kill(self) -> None:
        """End the program and its JVM at once, frozen ones as well."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        self.program.wait()

    def wait_for_all(self) -> None:
        """Wait until the JVM has ended, too, which it does by itself.

        Raises:
            AssertionError: if it does not.
        """
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while any(each.group == self.program.pid for each in processes().values()):
            if time.monotonic() > deadline:
                raise AssertionError(f"a JVM without a program goes on: {self.log()}")
            time.sleep(0.1)

    def last_words(self) -> str:
        """Return with which error of statefun the program has ended; empty if with none."""
        lines = _LAST_WORDS.findall(self.log_file.read_text(errors="replace"))
        return str(lines[-1]) if lines else ""

    def log(self) -> str:
        """Return the end of the output of the program and its JVM."""
        return f"{self.log_file}: {self.log_file.read_text(errors='replace')[-3000:]}"


def send(process: int, number: signal.Signals) -> bool:
    """Send a signal; tell whether the process was still there."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def python_workers(jvms: Collection[int]) -> list[int]:
    """Return the Python workers of JVMs, without their daemons."""
    daemons = {
        number: process.parent
        for number, process in processes().items()
        if _DAEMON in arguments(number)
    }
    return [number for number, parent in daemons.items() if daemons.get(parent) in jvms]


class Process(NamedTuple):
    """The parent and the group of a process."""

    parent: int
    group: int


def processes() -> dict[int, Process]:
    """Return the processes of this machine, without those that have ended."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            if status[0] not in "ZX":
                found[int(folder.name)] = Process(int(status[1]), int(status[2]))
    return found


def arguments(process: int) -> list[bytes]:
    """Return the command line of a process; one empty argument if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return [b""]
