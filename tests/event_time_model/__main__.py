# SPDX-License-Identifier: Apache-2.0
"""Try random programs until they have had so many records, or show one."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from contextlib import nullcontext
from itertools import count

import event_time_model
from event_time_model.run import LARGE, SMALL, problem_of_seed
from event_time_model.sabotage import SABOTAGES, sabotaged
from statefun.dev.progress import ProgressLine


def main() -> int:
    """Try many programs, or show one."""
    parser = argparse.ArgumentParser(description=event_time_model.__doc__, prog="make event-time")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--sabotage", choices=SABOTAGES, help="a law to break")
    parser.add_argument("--processes", type=int)
    arguments = parser.parse_args()
    with sabotaged(arguments.sabotage) if arguments.sabotage else nullcontext():
        if arguments.seed is not None:
            print(_try(arguments.seed)[2] or "as it should be")  # noqa: T201 - a program
            return 0
        return _try_all(arguments)


def _try(seed: int) -> tuple[int, int, str]:
    records, wrong = problem_of_seed(seed, SMALL if seed % 4 else LARGE)
    return seed, records, wrong


def _try_all(arguments: argparse.Namespace) -> int:
    fork = multiprocessing.get_context("fork")  # with what is sabotaged
    begun, records, programs = time.monotonic(), 0, 0
    with ProgressLine("trying programs") as progress, fork.Pool(arguments.processes) as pool:
        # Not all seeds at once: a pool takes them all as soon as it can.
        for first in count(arguments.first, 100):
            for seed, more, wrong in pool.imap_unordered(_try, range(first, first + 100)):
                records, programs = records + more, programs + 1
                if wrong:
                    progress.update("")
                    print(f"seed {seed}: {wrong}", file=sys.stderr)  # noqa: T201 - a program
                    return 1
            progress.update(f"{records:,} records passed")
            if records >= arguments.records:
                break
    passed = time.monotonic() - begun
    print(  # noqa: T201 - a program
        f"{records:,} records in {programs:,} programs: all as in the model, in {passed:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
