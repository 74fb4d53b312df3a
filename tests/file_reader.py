# SPDX-License-Identifier: Apache-2.0
"""A file ingress as tests drive it, without Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from statefun.components.running import Folder, Offset
from statefun.files.file_settings import IngressFiles
from statefun.files.file_source import FileSource
from statefun.files.folder_watch import WaitingClock
from statefun.files.parsing import read_task
from statefun.module.loader import parse_module

MODULE = """
kind: io.statefun.file.v1/ingress
spec:
  id: test/in
  onChange: CHANGE
  MORE
  files: [{path: PATH, format: FORMAT, valueType: test/T, targets: [test.fns/f]}]
"""


class Time(WaitingClock):
    """A clock that a test sets; who waits finds that the time is over."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Return the time."""
        return self.seconds

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        """Let the time pass."""
        self.seconds += seconds
        return stopped.is_set()


class Reader:
    """An ingress over one checkpoint, as one start of an application after the other has it."""

    def __init__(
        self, folder: Path, format_: str, path: str = "in", change: str = "fail", more: str = ""
    ) -> None:
        self.folder = folder / "in"
        self.folder.mkdir(exist_ok=True)
        self._log = Folder.at(folder / "log")
        text = MODULE.replace("PATH", path).replace("FORMAT", format_).replace("CHANGE", change)
        text = text.replace("MORE", more)
        [ingress] = parse_module(text, str(folder / "module.yaml")).connector_ingresses
        self._settings: IngressFiles = ingress.settings
        self.offset: Offset = {"log": 0, "records": 0}
        self.clock = Time()
        self.committed: Callable[[], Offset] = lambda: self.offset
        self.start()

    def start(self, most: int = 1000) -> None:
        """Begin anew where the last micro-batch has ended."""
        self.source = FileSource(
            self._settings,
            self._log,
            most,
            committed=self.committed,
            clock=self.clock,
        )

    def write(self, name: str, text: str | bytes, age: float = 0) -> Path:
        """Write a file, of so many seconds ago."""
        file = self.folder / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        if age:
            changed = file.stat().st_mtime - age
            os.utime(file, (changed, changed))
        return file

    def append(self, name: str, text: str) -> None:
        """Let a file grow."""
        with (self.folder / name).open("a") as file:
            file.write(text)

    def read(self) -> list[dict[str, Any]]:
        """Read the next micro-batch; nothing if there is none."""
        self.clock.seconds += 2
        end = self.source.latest_offset(self.offset)
        rows = [
            row
            for task in self.source.tasks(self.offset, end)
            for batch in read_task(task)
            for row in batch.to_pylist()
        ]
        self.offset = end
        return rows

    def values(self) -> list[str]:
        """Return the values of the next micro-batch."""
        return [row["value"].decode() for row in self.read()]
