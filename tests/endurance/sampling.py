# SPDX-License-Identifier: Apache-2.0
"""What the processes of an application take, from inside and from outside.

Before each look, garbage is collected, and the allocators give back what is free: ``malloc`` of glibc keeps free memory
between blocks that are in use, so that a process seems to grow for hours in which nothing is kept.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from endurance.census import write_census

SAMPLES = "samples.jsonl"
WORKERS = "workers.jsonl"
_COLLECTIONS = 5
"""How often the JVM's garbage is collected for a sample: one collection may come while a micro-batch has most in the heap."""
_OLD = timedelta(minutes=10)
"""The age from which on a file counts as old: Spark deletes those that it does not need each minute."""
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


class _Allocated(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def own_figures() -> dict[str, float]:
    """Return what this process takes, once its garbage and its free memory are given back."""
    gc.collect()
    figures: dict[str, float] = {"blocks": sys.getallocatedblocks()}
    with suppress(AttributeError):  # there is no glibc, or an older one
        library = ctypes.CDLL(None)
        library.malloc_trim(0)
        library.mallinfo2.restype = _Allocated
        found = library.mallinfo2()
        figures["allocated"] = found.uordblks + found.hblkhd
    return {**figures, **process_figures("self")}


def write_worker(folder: Path, number: int) -> None:
    """Write down what the Python worker that calls this takes.

    Args:
        folder: takes the file.
        number: the beat with which this was asked.
    """
    line = json.dumps({"number": number, "worker": os.getpid(), **own_figures()})
    with (folder / WORKERS).open("a") as file:
        file.write(f"{line}\n")


def folder_figures(folder: Path) -> dict[str, int]:
    """Return the number of files below a folder, of them those that are old, and their bytes; files may go meanwhile."""
    files = old = size = 0
    long_ago = time.time() - _OLD.total_seconds()
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                facts = os.stat(os.path.join(path, name))  # noqa: PTH116, PTH118 - of many
                files += 1
                old += facts.st_mtime < long_ago
                size += facts.st_size
    return {"files": files, "old": old, "bytes": size}


_METASPACE = {"Metaspace", "Compressed Class Space"}
"""The memory of a JVM's classes. Besides this, there is beyond its heap the code that is compiled, for which it has 48 MB."""


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
        batch = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        driver = own_figures()  # what Python no longer refers to, the JVM can collect
        sample = {
            "batch": batch,
            "driver": driver,
            "jvm": _jvm_figures(context._jvm),  # noqa: SLF001 - as above
            "state": {"addresses": _addresses()},
            **{
                f"checkpoint/{path.name}": folder_figures(path)
                for path in checkpoint.iterdir()
                if path.is_dir()
            },
        }
        with (self._folder / SAMPLES).open("a") as file:
            file.write(f"{json.dumps(sample)}\n")
        write_census(self._folder, batch)


def _jvm_figures(jvm: Any) -> dict[str, float]:
    """Return what the JVM takes, once its garbage and its free memory are given back."""
    management = jvm.java.lang.management.ManagementFactory
    process = management.getRuntimeMXBean().getPid()
    heap = min(_left_in_heap(jvm) for _ in range(_COLLECTIONS))
    _trim(process)
    return {
        "heap": heap,
        "classes": management.getClassLoadingMXBean().getLoadedClassCount(),
        "metaspace": sum(
            pool.getUsage().getUsed()
            for pool in management.getMemoryPoolMXBeans()
            if pool.getName() in _METASPACE
        ),
        **process_figures(process),
    }


def _left_in_heap(jvm: Any) -> int:
    """Collect a JVM's garbage; return what is left in its heap, without the garbage that the query makes at once."""
    jvm.java.lang.System.runFinalization()
    jvm.java.lang.System.gc()
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    left = [pool.getCollectionUsage() for pool in pools]
    return sum(usage.getUsed() for usage in left if usage is not None)


def _trim(jvm: int) -> None:
    """Let a JVM give back free memory, if there is the tool of a JDK for it, which Java 17 has from 17.0.9 on."""
    if (tool := shutil.which("jcmd")) is not None:
        command = [tool, str(jvm), "System.trim_native_heap"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _addresses() -> int:
    """Return the number of addresses with state, of the newest micro-batch."""
    shared: Any = SparkSession.active()._jsparkSession.sharedState()  # noqa: SLF001 - the query is in another session
    (query,) = shared.activeStreamingQueries().values()
    (operator,) = query.lastProgress().stateOperators()
    return int(operator.numRowsTotal())
