# SPDX-License-Identifier: Apache-2.0
"""The report of a benchmark: a table for people, and ``build/bench/<name>.json``."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import attrs

BUILD = Path(__file__).resolve().parents[1] / "build" / "bench"


@attrs.frozen
class Case:
    """One comparison: the same work done two ways, alternately, several times."""

    name: str
    unit: str
    ours: Sequence[float]
    other: Sequence[float]
    """The figures to compare with: run by run, beside ``ours``."""
    work: float = 1
    """Units of work in a run, such as addresses: for the rate that the table shows."""
    higher_is_better: bool = False
    """Whether the figures are rates, and not times."""
    goal: float | None = None
    """The ratio to reach, if there is one."""

    @property
    def ratios(self) -> list[float]:
        """How many times better ours is, run by run."""
        pairs = zip(self.ours, self.other, strict=True)
        return [a / b if self.higher_is_better else b / a for a, b in pairs]


def alternate(
    runs: int, ours: Callable[[], float], other: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Measure two things in turn, after one run of each that does not count."""
    figures: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for name, measured, measure in zip(("ours", "other"), figures, (ours, other), strict=True):
            print(f"run {run} of {runs}, {name}", file=sys.stderr)  # a failure belongs to this step
            figure = measure()
            if run:
                measured.append(figure)
    return figures


def report(name: str, cases: Sequence[Case], notes: Sequence[str] = ()) -> None:
    """Print the table and write the JSON file."""
    width = max(len(case.name) for case in cases)
    print(f"\n{name}")
    print(f"{'case':<{width}} {'ours':>12} {'other':>12} {'ratio':>7} {'spread':>13} {'goal':>5}")
    for case in cases:
        ratios = case.ratios
        print(
            f"{case.name:<{width}} {figure(statistics.median(case.ours), case.unit):>12} "
            f"{figure(statistics.median(case.other), case.unit):>12} "
            f"{statistics.median(ratios):>7.2f} {min(ratios):>6.2f}-{max(ratios):<6.2f} {case.goal or '':>5}"
        )
    for note in notes:
        print(f"  {note}")
    BUILD.mkdir(parents=True, exist_ok=True)
    content = {
        "date": datetime.now(tz=timezone.utc).date().isoformat(),
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "memory": _memory(),
            "python": platform.python_version(),
            "java": _java(),
        },
        "versions": {
            package: version(package)
            for package in ("statefun", "pyspark", "pyarrow", "protobuf", "confluent-kafka")
        },
        "cases": [
            {
                "name": case.name,
                "unit": case.unit,
                "ours": statistics.median(case.ours),
                "other": statistics.median(case.other),
                "ratio": statistics.median(case.ratios),
                "spread": [min(case.ratios), max(case.ratios)],
                "goal": case.goal,
                "runs": {"ours": list(case.ours), "other": list(case.other)},
            }
            for case in cases
        ],
        "notes": list(notes),
    }
    (BUILD / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


def figure(value: float, unit: str) -> str:
    """Return a figure for people.

    >>> figure(52700.4, "1/s"), figure(0.1364, "s"), figure(12.3, "s")
    ('52,700/s', '136 ms', '12.3 s')
    """
    if unit == "1/s":
        return f"{value:,.0f}/s"
    for size, name in ((1, "s"), (1e-3, "ms")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value * 1e6:.3g} µs"


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return said.stderr.partition("\n")[0]
