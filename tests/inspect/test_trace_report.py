# SPDX-License-Identifier: Apache-2.0
"""What ``statefun trace`` prints of any journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from noted_traces import noted, span

from statefun.cli import main
from statefun.engine.trace_journal import FAILURE, INVOCATION, RECORD
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_functions import KnownFunctions, write_functions


def shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> list[str]:
    """Run the command; return its lines."""
    assert main(["trace", str(tmp_path), *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_terminal_obeys_no_character_of_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of no path of a file, address, key or exception; JSON has them as they are."""
    evil = "\x1b[2J\n\u202e'\"/"
    noted(
        Folder.at(tmp_path),
        [
            (INVOCATION, 1, 0, f"a{evil}", f"s3://in/{evil}*.csv/0/7"),
            (RECORD, 0, 1, evil, evil),
            (FAILURE, 0, 1, "", f"ValueError: {evil}"),
        ],
    )

    for what in (f"t/f/a{evil}", f"s3://in/{evil}*.csv/0/7"):
        lines = shown(capsys, tmp_path, what)
        assert len(lines) == 4
        assert all(line.isprintable() for line in lines)
        assert lines[1].endswith("<--")
    document = json.loads("".join(shown(capsys, tmp_path, f"t/f/a{evil}", "--json")))
    assert document == {
        "asked": [span(1).hex()],
        "invocations": [
            {
                "id": span(1).hex(),
                "address": f"t/f/a{evil}",
                "batch": 0,
                "time": "1970-01-01T00:00:00+00:00",
                "causes": [],
                "records_in": [f"s3://in/{evil}*.csv/0/7"],
                "failures": [f"ValueError: {evil}"],
                "records_out": [{"topic": evil, "key": f"{evil}\0t/f"}],
            }
        ],
        "is_cut": False,
        "left_out": 0,
    }
    assert main(["trace", str(tmp_path), f"t/f/{evil}"]) != 0
    assert capsys.readouterr().err.rstrip().isprintable()


def test_an_address_may_look_like_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its id has slashes and numbers."""
    noted(Folder.at(tmp_path), [(INVOCATION, 1, 0, "1/2", "in/0/7")])

    assert shown(capsys, tmp_path, "t/f/1/2") == shown(capsys, tmp_path, "in/0/7")


def test_a_time_is_not_for_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be left out without a word."""
    noted(Folder.at(tmp_path), [(INVOCATION, 1, 0, "a", "in/0/7")])

    assert main(["trace", str(tmp_path), "in/0/7", "--at", "1h"]) != 0
    assert "in/0/7 is a record: leave --at out" in capsys.readouterr().err
    assert len(shown(capsys, tmp_path, "t/f/a", "--at", "1h")) == 2


def test_a_renamed_function_has_its_present_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any of its names leads to it."""
    folder = Folder.at(tmp_path)
    noted(folder, [(INVOCATION, 1, 0, "a", "in/0/7")])
    write_functions(folder, KnownFunctions(frozenset({"t/f"}), names={"t/f": ["t/g", "t/h"]}))

    for name in ("t/f", "t/g", "t/h"):
        assert "─ t/h/a  " in shown(capsys, tmp_path, f"{name}/a")[1]


def test_a_long_and_a_wide_trace_fit_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Deep levels have numbers instead of spaces, and of very many records the first ones are shown."""
    noted(
        Folder.at(tmp_path),
        *([(INVOCATION, number, number - 1, "a", "")] for number in range(1, 501)),
        [(RECORD, 0, 500, "out", f"out{number}") for number in range(10_000)],
    )

    lines = shown(capsys, tmp_path, "t/f/a")

    assert max(map(len, lines)) < 200
    assert "(level 500) t/f/a  batch 499" in lines[500]
    assert lines[501].endswith("record to out0, key out\\x00t/f")
    assert len(lines) == 602
    assert lines[-1].endswith("and 9,900 further failures and records")
