# SPDX-License-Identifier: Apache-2.0
"""Programs of users under mypy --strict and pyright."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typing"
ACCEPTED, REFUSED = FOLDER / "accepted.py", FOLDER / "refused.py"
EXPECTED = re.compile(r"# mypy: (?P<mypy>\S+); pyright: (?P<pyright>\S+)")
Errors = dict[Path, set[tuple[int, str]]]
"""Lines and rules, by file."""


def by_mypy() -> Errors:
    """Return what mypy finds."""
    cache = Path(__file__).parents[1] / "build" / "mypy-of-users"
    options = ("--strict", "--config-file=", "--no-error-summary", f"--cache-dir={cache}")
    command = [sys.executable, "-m", "mypy", *options, str(ACCEPTED), str(REFUSED)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: Errors = {ACCEPTED: set(), REFUSED: set()}
    for path, line, rule in re.findall(r"^(.+?):(\d+): error: .*\[(\S+)\]$", printed, re.MULTILINE):
        found[Path(path).resolve()].add((int(line), rule))
    return found


def by_pyright() -> Errors:
    """Return what pyright finds."""
    options = ("--outputjson", "--pythonpath", sys.executable)
    command = [sys.executable, "-m", "pyright", *options, str(ACCEPTED), str(REFUSED)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: Errors = {ACCEPTED: set(), REFUSED: set()}
    for each in json.loads(printed)["generalDiagnostics"]:
        line = each["range"]["start"]["line"] + 1
        found[Path(each["file"]).resolve()].add((line, each.get("rule", each["message"])))
    return found


def expected(checker: str) -> set[tuple[int, str]]:
    """Return the lines and rules that the comments name."""
    lines = enumerate(REFUSED.read_text().splitlines(), 1)
    return {(number, match[checker]) for number, line in lines for match in EXPECTED.finditer(line)}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_programs_are_checked_as_their_comments_say(checker: str) -> None:
    """What is right is clean, and each mistake is found in its line."""
    found = by_mypy() if checker == "mypy" else by_pyright()

    assert found[ACCEPTED] == set()
    missing = expected(checker) - found[REFUSED]
    assert missing == set()
    lines = {line for line, _ in expected(checker)}
    assert {(line, rule) for line, rule in found[REFUSED] if line not in lines} == set()
    assert len(lines) > 15
