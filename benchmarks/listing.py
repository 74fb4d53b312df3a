# SPDX-License-Identifier: Apache-2.0
"""Does a look at a folder cost more when more of its files are known?

The CPU time of planning a micro-batch for one new file, beside 1,000 and beside 100,000 files that were
read; and what pyarrow takes to list the folder, which is the least that a look can cost.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

from pyarrow import fs
from report import Case, alternate, report

from statefun.components.running import Folder
from statefun.files.file_settings import FileFormat, Files, IngressFiles
from statefun.files.file_source import FileSource
from statefun.files.folder_watch import WaitingClock


class Time(WaitingClock):
    """A clock on which it is time for a look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Return the time."""
        return self.seconds


class Reader:
    """An ingress that has read all files of a folder."""

    def __init__(self, root: Path, known: int) -> None:
        self.known = known
        self.folder = root / f"in-{known}"
        self.folder.mkdir()
        self.number = 0
        for _ in range(known):
            self.add()
        self.clock = Time()
        path = str(self.folder / "*.txt")
        files = {path: Files(path, FileFormat.LINES)}
        log = Folder.at(root / f"log-{known}")
        settings = IngressFiles("ingress benchmark/in", files)
        self.source = FileSource(settings, log, known, committed=lambda: None, clock=self.clock)
        self.offset = self.source.initial_offset()
        self.plan()

    def add(self) -> None:
        """Write a file with a record."""
        self.number += 1
        (self.folder / f"part-{self.number:09}.txt").write_text("one\n")

    def plan(self) -> float:
        """Plan a micro-batch; return the CPU time."""
        self.clock.seconds += 60
        began = time.process_time()
        self.offset = self.source.latest_offset(self.offset)
        return time.process_time() - began

    def plan_new(self) -> float:
        """Plan a micro-batch for one new file; return the CPU time."""
        self.add()
        return self.plan()

    def list_files(self) -> float:
        """Let pyarrow list the folder; return the CPU time."""
        began = time.process_time()
        fs.LocalFileSystem().get_file_info(fs.FileSelector(str(self.folder)))
        return time.process_time() - began


def main() -> None:
    """Compare looks at a small and a large folder, and with pyarrow alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--known", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name:
        small, large = (Reader(Path(name), known) for known in (1000, arguments.known))
        compared = partial(alternate, arguments.runs, large.plan_new)
        cases = [
            Case(
                f"one new file, {large.known:,} known (ours) vs 1,000",
                "s",
                *compared(small.plan_new),
            ),
            Case(
                f"one new file, {large.known:,} known, vs a listing",
                "s",
                *compared(large.list_files),
            ),
        ]
    microseconds = sorted(cases[0].ours)[len(cases[0].ours) // 2] / large.known * 1e6
    report("listing", cases, [f"{microseconds:.1f} µs of CPU a known file and look"])


if __name__ == "__main__":
    main()
