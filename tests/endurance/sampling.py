# SPDX-License-Identifier: Apache-2.0
"""What the processes of an application take, from inside and from outside."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, final

from pyspark import SparkContext

SAMPLES = "samples.jsonl"
WORKERS = "workers.jsonl"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def process_figures(process: int | str) -> dict[str, float]:
    """Return the memory, threads and file descriptors of a process; nothing if it has ended."""
    folder = Path(f"/proc/{process}")
    with suppress(OSError):
        return {
            "resident": int((folder / "statm").read_text().split()[1]) * _PAGE,
            "threads": len(list((folder / "task").iterdir())),
            "descriptors": len(list((folder / "fd").iterdir())),
        }
    return {}


def write_worker(folder: Path, number: int) -> None:
    """Write down what the Python worker that calls this takes.

    Args:
        folder: takes the file.
        number: the beat with which this was asked.
    """
    gc.collect()
    figures = {"blocks": sys.getallocatedblocks(), **process_figures("self")}
    line = json.dumps({"number": number, "worker": os.getpid(), **figures})
    with (folder / WORKERS).open("a") as file:
        file.write(f"{line}\n")


def folder_figures(folder: Path) -> dict[str, int]:
    """Return the number of files below a folder, and their bytes; files may go meanwhile."""
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.stat(os.path.join(path, name)).st_size  # noqa: PTH116, PTH118 - of many
                files += 1
    return {"files": files, "bytes": size}


@final
class Sampler:
    """Samples this process, which is the driver, its JVM, and its checkpoint, in a thread.

    Args:
        folder: has the checkpoint; takes the file of samples.
        every: the time between two samples.
    """

    def __init__(self, folder: Path, every: timedelta) -> None:
        self._folder = folder
        self._every = every.total_seconds()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every):
            with suppress(Exception):  # the JVM is about to start or to end
                self._sample()

    def _sample(self) -> None:
        context: Any = SparkContext._active_spark_context  # noqa: SLF001 - there is no other way
        checkpoint = self._folder / "checkpoint"
        commits = checkpoint / "commits"
        if context is None or not commits.exists():
            return
        java = context._jvm.java.lang  # noqa: SLF001 - as above
        runtime, management = java.Runtime.getRuntime(), java.management.ManagementFactory
        java.System.gc()
        gc.collect()
        sample = {
            "batch": max(int(path.name) for path in commits.iterdir() if path.name.isdecimal()),
            "driver": {"blocks": sys.getallocatedblocks(), **process_figures("self")},
            "jvm": {
                "heap": runtime.totalMemory() - runtime.freeMemory(),
                "beyond": management.getMemoryMXBean().getNonHeapMemoryUsage().getUsed(),
                **process_figures(management.getRuntimeMXBean().getPid()),
            },
            **{
                f"checkpoint/{path.name}": folder_figures(path)
                for path in checkpoint.iterdir()
                if path.is_dir()
            },
        }
        with (self._folder / SAMPLES).open("a") as file:
            file.write(f"{json.dumps(sample)}\n")
