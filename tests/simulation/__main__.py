# SPDX-License-Identifier: Apache-2.0
"""Try many seeds, or show one."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from contextlib import nullcontext

import simulation
from simulation.run import simulate
from simulation.sabotage import SABOTAGES, sabotaged
from statefun.dev.progress import ProgressLine


def main() -> int:
    """Try many seeds, or show one."""
    parser = argparse.ArgumentParser(description=simulation.__doc__, prog="make simulate")
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--sabotage", choices=SABOTAGES, help="a rule to switch off")
    parser.add_argument("--processes", type=int)
    arguments = parser.parse_args()
    with sabotaged(arguments.sabotage) if arguments.sabotage else nullcontext():
        if arguments.seed is not None:
            print(simulate(arguments.seed) or "as it should be")  # noqa: T201 - a program
            return 0
        return _try_all(range(arguments.first, arguments.first + arguments.seeds), arguments)


def _try_all(seeds: range, arguments: argparse.Namespace) -> int:
    fork = multiprocessing.get_context("fork")  # with what is sabotaged
    with (
        ProgressLine(f"simulating {len(seeds)} seeds") as progress,
        fork.Pool(arguments.processes) as pool,
    ):
        for done, (seed, wrong) in enumerate(pool.imap_unordered(_try, seeds, chunksize=50), 1):
            if wrong:
                progress.update("")
                print(f"seed {seed}: {wrong}", file=sys.stderr)  # noqa: T201 - a program
                return 1
            if done % 100 == 0:
                progress.update(f"{done} passed")
    print(f"{len(seeds)} seeds passed: nothing lost, nothing twice, all in order")  # noqa: T201 - a program
    return 0


def _try(seed: int) -> tuple[int, str]:
    return seed, simulate(seed)


if __name__ == "__main__":
    sys.exit(main())
