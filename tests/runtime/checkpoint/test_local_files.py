# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from statefun.runtime.checkpoint.folder import Folder

OWNER, OTHER = 65534, 65533


@pytest.fixture(autouse=True)
def _hardened() -> Iterator[None]:
    """Create files as the shell of a hardened system does: for their owner alone."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_a_file_keeps_its_access_rights_when_it_is_replaced(tmp_path: Path) -> None:
    """A new file gets those of the system."""
    folder = Folder.at(tmp_path)
    folder.write("file", b"1")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    (tmp_path / "file").chmod(0o640)

    folder.write("file", b"2")

    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert folder.read("file") == b"2"


def test_a_file_gets_no_rights_from_a_link_and_none_to_run_as_its_owner(tmp_path: Path) -> None:
    """Who may write into the folder could otherwise let root make a program that runs as root."""
    folder = Folder.at(tmp_path)
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("open")
    (tmp_path / "program").touch()
    (tmp_path / "program").chmod(0o6755)

    for name in ("link", "program"):
        folder.write(name, b"new")

    assert stat.S_IMODE((tmp_path / "link").lstat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "program").stat().st_mode) == 0o755


@pytest.mark.skipif(os.getuid() != 0, reason="others cannot give files away")
def test_what_root_writes_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    """Otherwise the application of another user could not read what root has ordered; a replaced file keeps its owner."""
    os.chown(tmp_path, OWNER, OWNER)
    folder = Folder.at(tmp_path)

    folder.write("new", b"")
    folder.child("sent").child("new").write("message", b"")
    folder.write("replaced", b"1")
    os.chown(tmp_path / "replaced", OTHER, OTHER)
    folder.write("replaced", b"2")

    owners = {str(path.relative_to(tmp_path)): path.stat().st_uid for path in tmp_path.rglob("*")}
    of_owner = dict.fromkeys(("new", "sent", "sent/new", "sent/new/message"), OWNER)
    assert owners == {**of_owner, "replaced": OTHER}
