# SPDX-License-Identifier: Apache-2.0
"""Does a micro-batch cost more when more addresses exist?

The time of a 1,000-record batch with 10,000 and with 10,000,000 addresses in the state store, and
the memory of driver, JVM and Python workers at both. Also the time of an almost empty batch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from dispatch import functions
from operator_runs import run_batches, write_batches
from report import Case, report

from statefun.runtime.spark.session import keep_checkpoint_locally, open_session

FILL = 100_000


def memory() -> dict[str, int]:
    """Return the resident MiB of this process, the JVM, and the largest Python worker."""
    names = {"driver": 0, "JVM": 0, "worker": 0}
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            command = (process / "cmdline").read_bytes()
            status = (process / "status").read_text()
        except OSError:
            continue
        resident = next(
            (int(line.split()[1]) // 1024 for line in status.splitlines() if "VmRSS" in line), 0
        )
        if int(process.name) == os.getpid():
            names["driver"] = resident
        elif b"SparkSubmit" in command:
            names["JVM"] = max(names["JVM"], resident)
        elif b"statefun.runtime.dispatch.daemon" in command:
            names["worker"] = max(names["worker"], resident)
    return names


def measure_memory(used: dict[str, int], _batch: int) -> None:
    """Take note of the memory in use after a batch."""
    used.update(memory())


def main() -> None:
    """Fill the store, then measure small batches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=10_000_000)
    parser.add_argument("--batches", type=int, default=30)
    arguments = parser.parse_args()
    session = open_session(debug=False, state_partitions=2)
    keep_checkpoint_locally(session)
    generator = np.random.default_rng(1)
    notes = []
    medians: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name:
        # The first one is cold, and does not count.
        for number, addresses in enumerate((arguments.small, arguments.small, arguments.large)):
            fill = [range(at, min(at + FILL, addresses)) for at in range(0, addresses, FILL)]
            small = [generator.integers(addresses, size=1000) for _ in range(arguments.batches)]
            tiny = [[0]] * arguments.batches
            source = Path(name) / f"in-{number}"
            write_batches(source, "bench/count", [*fill, *small, *tiny])
            used: dict[str, int] = {}
            run = run_batches(
                session,
                source,
                Path(name),
                functions(),
                after=partial(measure_memory, used),
            )
            seconds = run.batch_seconds[-2 * arguments.batches :]
            medians[addresses] = list(seconds[: arguments.batches])
            if not number:
                continue
            notes.append(
                f"{addresses:,} addresses: "
                f"1,000-record batch {statistics.median(medians[addresses]) * 1000:.0f} ms, "
                f"one-record batch {statistics.median(seconds[arguments.batches :]) * 1000:.0f} ms; "
                + ", ".join(f"{who} {mib} MiB" for who, mib in used.items())
            )
    case = Case(
        f"1,000 records, {arguments.large:,} (ours) vs {arguments.small:,} addresses",
        "s",
        medians[arguments.large],
        medians[arguments.small],
    )
    report("growth", [case], notes)


if __name__ == "__main__":
    main()
