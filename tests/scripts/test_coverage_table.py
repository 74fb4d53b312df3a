# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import doctest
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import coverage_table


def _summary(lines: int, statements: int, taken: int, branches: int) -> dict[str, dict[str, int]]:
    return {
        "summary": dict(
            zip(coverage_table.FIELDS, (lines, statements, taken, branches), strict=True)
        )
    }


def test_modules_of_a_package_are_summed() -> None:
    """Lines and branches of all its modules, and of all packages at the end."""
    files = {
        "statefun/sdk/types.py": _summary(10, 10, 4, 4),
        "statefun/sdk/yaml/state.py": _summary(1999, 2000, 0, 0),
        "statefun/runtime/egress/lane.py": _summary(5, 10, 0, 10),
        "statefun/cli.py": _summary(0, 0, 0, 0),
    }

    assert list(coverage_table.table(files))[2:] == [
        "| (modules) |  |  |  |",
        "| runtime/egress | 50.0 % | 0.0 % | 25.0 % |",
        "| sdk | 99.9 % | 100.0 % | 99.9 % |",
        "| all | 99.7 % | 28.5 % | 99.2 % |",
    ]


def test_the_examples_hold() -> None:
    """Those of the docstrings."""
    assert doctest.testmod(coverage_table).failed == 0
