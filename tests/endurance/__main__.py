# SPDX-License-Identifier: Apache-2.0
"""Run for as many micro-batches as the command line says, and judge what was sampled."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import endurance
from endurance.census import TYPES, changed
from endurance.parts import drive
from endurance.running import endure
from endurance.sampling import SAMPLES, WORKERS
from endurance.verdict import WARM_UPS, Verdict, draw, verdicts
from statefun.dev.progress import ProgressLine

BUILD = Path(__file__).resolve().parents[2] / "build" / "endurance"
ABSENCE = timedelta(seconds=20)
_SHOWN = 10
"""Types of objects in the driver that are listed, if their number grows."""


def main() -> int:
    """Run, judge and draw."""
    parser = argparse.ArgumentParser(
        description=endurance.__doc__,
        prog="make endurance",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--batches", type=int, default=200_000)
    parser.add_argument("--every", type=float, default=15, help="seconds between two samples")
    parser.add_argument("--parts", action="store_true", help="the driver's parts, without Spark")
    parser.add_argument(
        "--judge", type=Path, help="the folder of a run that is, or build/endurance"
    )
    arguments = parser.parse_args()
    if arguments.parts:
        with ProgressLine("the driver's parts") as progress:
            found = drive(arguments.batches, progress.update)
        return _judge("parts", found)
    if arguments.judge:
        return _judge_run(arguments.judge)
    # After any failure, the files stay for inspection.
    folder = Path(tempfile.mkdtemp(prefix="statefun-endurance-")) / "run"
    with ProgressLine("endurance") as progress:
        every = timedelta(seconds=arguments.every)
        used = endure(folder, arguments.batches, every, ABSENCE, progress.update)
    for name, count in used.counts.items():
        print(f"{count:>10,} {name}")  # noqa: T201 - a program
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in (SAMPLES, WORKERS, TYPES):
        shutil.copy(folder / name, BUILD)
    failed = _judge_run(folder)
    if used.missing:
        print(f"not in use: {', '.join(used.missing)}", file=sys.stderr)  # noqa: T201 - a program
    if not (failed or used.missing):
        shutil.rmtree(folder.parent)
    return int(failed or bool(used.missing))


def _judge_run(folder: Path) -> int:
    """Judge the figures of a run, and list the types of objects of which the driver has more than before."""
    failed = _judge("endurance", verdicts(folder))
    for growth, kind in changed(folder, WARM_UPS[0])[:_SHOWN]:
        print(f"{growth:>+10,.0f} {kind}")  # noqa: T201 - a program
    return failed


def _judge(name: str, found: Sequence[Verdict]) -> int:
    """Print what is known of each figure, and draw it; tell whether one of them grows."""
    picture = BUILD / f"{name}.png"
    for each in found:
        print(each)  # noqa: T201 - a program
    draw(found, picture)
    print(f"drawn in {picture}")  # noqa: T201 - a program
    return int(any(each.word == "grows" for each in found))


if __name__ == "__main__":
    sys.exit(main())
