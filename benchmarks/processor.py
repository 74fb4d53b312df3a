# SPDX-License-Identifier: Apache-2.0
"""CPU time of this process and of everything below it, by what it is for."""

from __future__ import annotations

import bisect
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_EVERY_SECONDS = 0.25
_PROC = Path("/proc")
_OTHERS = "JVM, other"
_OWN_THREADS = (
    ("Executor task", "tasks"),
    ("C1 ", "JIT"),
    ("C2 ", "JIT"),
    ("GC ", "GC"),
    ("G1 ", "GC"),
    ("VM Thread", "GC"),
)
"""What threads of Spark's JVM are for, by the beginnings of their names."""


Place = tuple[int, int, str]
"""A process, one of its threads or 0, and what that is for."""


def used() -> dict[Place, float]:
    """Return the seconds of CPU time so far of all processes, and of threads of Spark's JVM."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (fields := _fields(folder)):
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    seconds: dict[Place, float] = {}
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        seconds |= _of_process(process)
    return seconds


class Sampler:
    """Records :func:`used` now and then, so that a part of a run can be looked at afterwards."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._samples: list[dict[str, float]] = []
        self._known: dict[Place, float] = {}
        """The newest figures, also of processes and threads that have ended."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record samples until the block ends."""
        stop = threading.Event()
        thread = threading.Thread(target=self._record, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def between(self, begin: float, end: float) -> Mapping[str, float]:
        """Return the CPU seconds between two moments, in seconds since the epoch, by purpose."""
        first, last = self._at(begin), self._at(end)
        return {name: cost - first.get(name, 0) for name, cost in last.items()}

    def _record(self, stop: threading.Event) -> None:
        while True:
            self._times.append(time.time())
            self._known |= used()
            self._samples.append(self._by_purpose())
            if stop.wait(_EVERY_SECONDS):
                break

    def _by_purpose(self) -> dict[str, float]:
        sums: defaultdict[str, float] = defaultdict(float)
        for (_, thread, purpose), seconds in self._known.items():
            sums[purpose] += seconds
            if thread:  # it counts for its process as well
                sums[_OTHERS] -= seconds
        return dict(sums)

    def _at(self, moment: float) -> dict[str, float]:
        index = bisect.bisect(self._times, moment)
        return self._samples[min(index, len(self._samples) - 1)]


def _of_process(process: int) -> dict[Place, float]:
    folder = _PROC / str(process)
    fields = _fields(folder)
    if not fields:
        return {}
    command = _text(folder / "cmdline").replace("\0", " ")
    if process == os.getpid():
        purpose = "driver"
    elif ".daemon" in command:
        purpose = "Python workers"
    elif "kafka.Kafka" in command:
        purpose = "broker"
    elif "org.apache.spark" in command:
        purpose = _OTHERS
    else:
        purpose = "peer"
    seconds = {(process, 0, purpose): _seconds(fields)}
    if purpose == _OTHERS:
        for task in _listed(folder / "task"):
            if (parts := _fields(task)) and (thread := _purpose(_text(task / "comm"))):
                seconds[process, int(task.name), thread] = _seconds(parts)
    return seconds


def _purpose(thread: str) -> str | None:
    return next((purpose for start, purpose in _OWN_THREADS if thread.startswith(start)), None)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the process has ended
        return []


def _fields(folder: Path) -> list[str]:
    """Return the fields of a stat file from the state on; empty if the process has ended."""
    return _text(folder / "stat").rpartition(")")[2].split()


def _seconds(fields: list[str]) -> float:
    """Return user and system time."""
    return sum(map(int, fields[11:13])) / _TICKS


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
