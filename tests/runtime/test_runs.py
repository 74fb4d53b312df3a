# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from statefun.runtime.egress.runs import Runs
from statefun.runtime.filesystem import Folder


def test_a_run_is_known_before_it_publishes(tmp_path: Path) -> None:
    """So are those before it, whether they have got as far as publishing or not."""
    folder = Folder.at(tmp_path)

    assert Runs(folder, "a", ["t/out"]).begin() == {"a"}
    assert Runs(folder, "b", ["t/out"]).begin() == {"a", "b"}


def test_runs_without_markers_are_forgotten(tmp_path: Path) -> None:
    """Those that the markers name stay, and so does the run itself."""
    folder = Folder.at(tmp_path)
    for run in "abc":
        Runs(folder, run, ["t/out"]).begin()
    last = Runs(folder, "d", ["t/out", "t/more"])
    last.begin()

    last.forget_all_but({"b", ""})

    assert folder.child("runs").names() == ["b", "d"]


def test_runs_are_kept_for_egresses_that_are_not_declared_now(tmp_path: Path) -> None:
    """Their markers cannot be asked; they may be declared again."""
    folder = Folder.at(tmp_path)
    Runs(folder, "a", ["t/out", "t/gone"]).begin()
    last = Runs(folder, "b", ["t/out"])
    last.begin()

    last.forget_all_but(set())

    assert folder.child("runs").names() == ["a", "b"]


def test_nothing_is_kept_where_nothing_is_published_exactly_once(tmp_path: Path) -> None:
    """No marker will ever name the run."""
    assert Runs(Folder.at(tmp_path), "a", []).begin() == {"a"}
    assert not [*tmp_path.iterdir()]
