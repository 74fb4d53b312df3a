# SPDX-License-Identifier: Apache-2.0
"""Print the coverage of each package, and of each room of the runtime, as a table in Markdown.

``make coverage`` calls it with the report in JSON that coverage.py has written.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

FIELDS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main() -> None:
    """Print the table."""
    print("\n".join(table(json.loads(Path(sys.argv[1]).read_text("utf-8"))["files"])))


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
    packages: dict[str, Counter[str]] = {}
    for path, report in files.items():
        counts = {field: report["summary"][field] for field in FIELDS}
        packages.setdefault(package_of(path), Counter()).update(counts)
    yield "| Package | Lines | Branches | Both |"
    yield "|---|---|---|---|"
    for name, counted in sorted(packages.items()):
        yield _row(name, counted)
    yield _row("all", sum(packages.values(), Counter()))


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
