# SPDX-License-Identifier: Apache-2.0
"""Print the coverage of each package, and of each room of the runtime, as a table in Markdown.

``make coverage`` calls it with the report in JSON that coverage.py has written. Unless the report is of some of the
tests only, the shares of some packages have a floor: below the floor, the script prints them again, and fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

FIELDS = ("covered_lines", "num_statements", "covered_branches", "num_branches")
FLOOR = 95.0
"""The smallest share of lines and branches together, in percent, that tests execute of the packages in ``KEPT``."""
KEPT = ("engine", "sdk", "runtime/checkpoint", "runtime/egress")
"""The packages that decide whether something is lost or repeated."""
_HEADING = ("| Package | Lines | Branches | Both |", "|---|---|---|---|")


def main() -> None:
    """Print the table, and fail if a package is below its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--partial", action="store_true", help="some tests did not run: no floor")
    options = parser.parse_args()
    files = json.loads(options.report.read_text("utf-8"))["files"]
    print("\n".join(table(files)))
    low = [] if options.partial else list(below_floor(files))
    if low:
        print(
            "\n".join(
                ["", f"Tests execute less than {FLOOR} % of these packages:", "", *_HEADING, *low]
            )
        )
        sys.exit(1)


def package_of(path: str) -> str:
    """Return the package of a module, or the room of a module of the runtime.

    >>> package_of("statefun/sdk/types.py"), package_of("statefun/runtime/egress/lane.py")
    ('sdk', 'runtime/egress')
    >>> package_of("statefun/cli.py"), package_of("statefun/runtime/run.py")
    ('(modules)', 'runtime/(modules)')
    """
    folders = PurePosixPath(path).parts[1:-1]
    depth = 2 if folders[:1] == ("runtime",) else 1
    return "/".join([*folders[:depth], *(["(modules)"] if len(folders) < depth else [])])


def table(files: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table: by package, and the total.

    Args:
        files: the summaries of modules, by path, as coverage.py reports them.
    """
    packages = _packages(files)
    yield from _HEADING
    for name, counted in sorted(packages.items()):
        yield _row(name, counted)
    yield _row("all", sum(packages.values(), Counter()))


def below_floor(files: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rows of the packages in ``KEPT`` that are below the floor, or not in the report.

    Args:
        files: the summaries of modules, by path, as coverage.py reports them.
    """
    packages = _packages(files)
    for name in KEPT:
        counted = packages.get(name, Counter())
        lines, statements, taken, branches = (counted[field] for field in FIELDS)
        if (lines + taken) * 100 < FLOOR * max(statements + branches, 1):
            yield _row(name, counted)


def _packages(files: Mapping[str, Any]) -> dict[str, Counter[str]]:
    packages: dict[str, Counter[str]] = {}
    for path, report in files.items():
        counts = {field: report["summary"][field] for field in FIELDS}
        packages.setdefault(package_of(path), Counter()).update(counts)
    return packages


def _row(name: str, counted: Counter[str]) -> str:
    lines, statements, taken, branches = (counted[field] for field in FIELDS)
    shares = [
        _share(lines, statements),
        _share(taken, branches),
        _share(lines + taken, statements + branches),
    ]
    return f"| {name} | {' | '.join(shares)} |"


def _share(covered: int, count: int) -> str:
    """Return a share in percent, rounded down: only what is complete shows 100."""
    return f"{covered * 1000 // count / 10:.1f} %" if count else ""


if __name__ == "__main__":
    main()
