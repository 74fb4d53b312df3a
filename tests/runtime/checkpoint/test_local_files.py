# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import socket
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


def test_only_files_and_folders_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pipe would block who opens it; the log has one warning for each entry that is left out."""
    (tmp_path / "file").write_text("1")
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert Folder.at(tmp_path).names() == ["below", "file", "link"]

    assert Folder.at(tmp_path).facts("pipe") is None
    assert sorted(caplog.messages) == [
        f"{tmp_path}/loop is left out: the link cannot be followed: Too many levels of symbolic links",
        *(
            f"{tmp_path}/{name} is left out: it is neither a file nor a folder"
            for name in ("pipe", "socket", "to pipe")
        ),
    ]


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
