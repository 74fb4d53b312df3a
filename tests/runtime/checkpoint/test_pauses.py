# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.pauses import PAUSED_FILE, Part, Paused, Pauses, read_paused
from statefun.sdk.errors import CheckpointError


def test_pauses_outlast_the_process(tmp_path: Path) -> None:
    """A later start reads exactly what was paused and not resumed."""
    pauses = Pauses(Folder.at(tmp_path))

    assert pauses.change(Part.INGRESS, "t/a", is_paused=True)
    assert pauses.change(Part.INGRESS, "t/b", is_paused=True)
    assert pauses.change(Part.EGRESS, "t/a", is_paused=True)
    assert pauses.change(Part.APPLICATION, is_paused=True)
    assert pauses.change(Part.INGRESS, "t/b", is_paused=False)

    later = Pauses(Folder.at(tmp_path)).paused
    assert later == Paused(True, frozenset({"t/a"}), frozenset({"t/a"})) == pauses.paused


def test_a_change_to_the_same_changes_nothing(tmp_path: Path) -> None:
    """The answer says so, and no listener is called."""
    pauses, calls = Pauses(Folder.at(tmp_path)), list[str]()
    pauses.listen(lambda: calls.append("changed"))

    assert not pauses.change(Part.EGRESS, "t/a", is_paused=False)
    assert pauses.change(Part.EGRESS, "t/a", is_paused=True)
    assert not pauses.change(Part.EGRESS, "t/a", is_paused=True)

    assert calls == ["changed"]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """An application must not go on as if nothing were paused."""
    Pauses(Folder.at(tmp_path)).change(Part.APPLICATION, is_paused=True)
    file = tmp_path / PAUSED_FILE
    file.write_bytes(file.read_bytes()[:-2])

    with pytest.raises(CheckpointError, match=PAUSED_FILE):
        read_paused(Folder.at(tmp_path))
