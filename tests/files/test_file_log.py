# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from statefun.components.running import Folder
from statefun.files.file_log import FileLog, FileRange, FileState, LogEntry

STATE = FileState(end=4, lines=1, modified=1, is_all=True, size=4, digest="")
RANGE = FileRange("/in", "/in", "a", 0, 4, 0, first=0, count=1, state=STATE)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_file_may_come_back_and_be_taken_away_at_once(tmp_path: Path, is_loaded: bool) -> None:
    """Then the file is forgotten, by the run that writes the entry and by runs that read the entry."""
    log = FileLog(Folder.at(tmp_path))
    log.states(0)
    log.write(1, LogEntry(1, [RANGE], [], []))
    log.write(2, LogEntry(1, [], ["/in/a"], []))
    assert log.states(2)["/in/a"].is_gone
    log.write(3, LogEntry(1, [], [], ["/in/a"], ["/in/a"]))
    if is_loaded:
        log = FileLog(Folder.at(tmp_path))

    assert dict(log.states(3)) == {}


@pytest.mark.parametrize("is_loaded", [False, True])
def test_removals_are_stored_until_the_next_entry(tmp_path: Path, *, is_loaded: bool) -> None:
    """Also those of a run that has crashed; a file that stays is withdrawn."""
    log = FileLog(Folder.at(tmp_path))
    log.store_removals(1, ["/in/a", "/in/b"])
    log = FileLog(Folder.at(tmp_path))
    log.store_removals(1, ["/in/c"])
    log.withdraw_removals(1, ["/in/b"])
    if is_loaded:
        log = FileLog(Folder.at(tmp_path))

    assert log.stored_removals(1) == {"/in/a", "/in/c"}
    assert log.stored_removals(2) == set()
    log.store_removals(2, ["/in/d"])
    assert log.stored_removals(2) == {"/in/d"}
