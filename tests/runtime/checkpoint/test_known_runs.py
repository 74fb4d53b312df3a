# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.known_runs import Runs


def added(folder: Folder, run: str, *egresses: str) -> Runs:
    """Let a run begin."""
    runs = Runs(folder, run, egresses)
    runs.add()
    return runs


def test_a_run_knows_the_earlier_runs(tmp_path: Path) -> None:
    """It does not matter whether they have published."""
    folder = Folder.at(tmp_path)

    assert added(folder, "a", "t/out").earlier == set()
    assert added(folder, "b", "t/out").earlier == {"a"}
    assert Runs(folder, "c", ["t/out"]).earlier == {"a", "b"}


def test_runs_without_markers_are_forgotten(tmp_path: Path) -> None:
    """Runs that markers name stay known, and so does the present run."""
    folder = Folder.at(tmp_path)
    for run in "abc":
        added(folder, run, "t/out")
    last = added(folder, "d", "t/out", "t/more")

    last.forget_all_but({"b", ""})

    assert folder.child("runs").names() == ["b", "d"]


def test_a_run_that_began_meanwhile_is_not_forgotten(tmp_path: Path) -> None:
    """It may have published after the markers were read."""
    folder = Folder.at(tmp_path)
    slow = Runs(folder, "slow", ["t/out"])
    added(folder, "quick", "t/out")

    slow.add()
    slow.forget_all_but(set())

    assert folder.child("runs").names() == ["quick", "slow"]


def test_runs_are_kept_for_egresses_that_are_not_declared_now(tmp_path: Path) -> None:
    """The markers of such egresses are not read, and the egresses may be declared again."""
    folder = Folder.at(tmp_path)
    added(folder, "a", "t/out", "t/gone")
    last = added(folder, "b", "t/out")

    last.forget_all_but(set())

    assert folder.child("runs").names() == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"7", b"[[]]"])
def test_damaged_files_of_runs_do_no_harm(tmp_path: Path, content: bytes) -> None:
    """They are kept: only their names are needed."""
    folder = Folder.at(tmp_path)
    folder.child("runs").write("a", content)
    last = added(folder, "b", "t/out")

    last.forget_all_but(set())

    assert folder.child("runs").names() == ["a", "b"]


def test_nothing_is_kept_where_nothing_is_published_exactly_once(tmp_path: Path) -> None:
    """No marker will ever name the run."""
    added(Folder.at(tmp_path), "a")

    assert not [*tmp_path.iterdir()]
