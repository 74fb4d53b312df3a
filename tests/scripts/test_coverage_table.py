# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("lines", "partial", "code"), [(94, (), 1), (95, (), 0), (94, ("--partial",), 0)]
)
def test_a_package_below_its_floor_is_an_error(
    tmp_path: Path, lines: int, partial: tuple[str, ...], code: int
) -> None:
    """The packages that have to be tested well; a report of some tests shows less."""
    report = tmp_path / "report.json"
    files = {f"statefun/{name}/x.py": _summary(99, 100, 0, 0) for name in coverage_table.KEPT}
    files["statefun/runtime/egress/x.py"] = _summary(lines, 100, 0, 0)
    report.write_text(json.dumps({"files": files}))

    done = subprocess.run(
        [sys.executable, coverage_table.__file__, report, *partial],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code, done.stderr
    assert done.stdout.count("| runtime/egress | ") == 1 + code
    assert done.stdout.count("| sdk | ") == 1


def test_a_package_that_is_not_in_the_report_is_below_its_floor() -> None:
    """Otherwise a package with another name would have no floor any more."""
    files = {f"statefun/{name}/x.py": _summary(1, 1, 0, 0) for name in coverage_table.KEPT[1:]}

    assert list(coverage_table.below_floor(files)) == [f"| {coverage_table.KEPT[0]} |  |  |  |"]


def test_the_examples_hold() -> None:
    """Those of the docstrings."""
    assert doctest.testmod(coverage_table).failed == 0
