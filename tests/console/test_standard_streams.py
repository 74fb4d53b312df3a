# SPDX-License-Identifier: Apache-2.0
"""Commands whose standard streams are closed, full, or have an encoding that lacks characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_checkpoint import small_checkpoint

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.pauses import Parts, Paused, write_paused

UTF_8, LATIN_1, ASCII = "utf-8:strict", "iso8859-1:strict", "ascii:strict"
"""What the standard streams have in the locales en_US.UTF-8, en_US.ISO-8859-1 and C."""


def command(encoding: str, *arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard streams have an encoding."""
    return subprocess.run(
        [sys.executable, "-m", "statefun.cli", *arguments],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("encoding", "name", "shown"),
    [
        (UTF_8, b"caf\xe9", b"caf\\udce9"),
        (LATIN_1, "Łódź".encode(), b"\\u0141\xf3d\\u017a"),
        (ASCII, "é😀".encode(), b"\\u00e9\\ud83d\\ude00"),
    ],
    ids=["bytes", "latin", "ascii"],
)
@pytest.mark.parametrize("is_json", [False, True])
def test_what_a_terminal_cannot_show_ends_no_command(
    tmp_path: Path, encoding: str, name: bytes, shown: bytes, *, is_json: bool
) -> None:
    """A command that has done its work says so, and ends with 0; JSON remains JSON."""
    checkpoint, backup = tmp_path / "checkpoint", os.fsencode(tmp_path) + b"/" + name
    small_checkpoint(checkpoint)

    ended = command(encoding, "snapshot", str(checkpoint), backup, *(["--json"] * is_json))

    assert ended.returncode == 0, ended.stderr
    assert shown in ended.stdout
    if is_json:
        text = ended.stdout.decode(encoding.partition(":")[0])
        assert json.loads(text)["snapshot"] == os.fsdecode(backup)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Folder:
    """Return the checkpoint of an application that does not run."""
    folder = small_checkpoint(tmp_path)
    write_paused(folder, Parts(frozenset({"t/in"})), Paused())
    return folder


def in_a_shell(command: str, checkpoint: Folder) -> tuple[int, str]:
    """Run a command with redirections; return its exit code and what it has printed."""
    ended = subprocess.run(
        ["sh", "-c", f'"$0" -m statefun.cli {command}', sys.executable, checkpoint.location],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", ["du", "status --json"])
def test_a_full_or_closed_output_ends_a_command_without_a_traceback(
    checkpoint: Folder, name: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is an error with a sentence; who closes the output does not want it."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert in_a_shell(f'{name} "$1" > /dev/full', checkpoint) == (
        1,
        "statefun: standard output cannot be written: No space left on device\n",
    )
    assert in_a_shell(f'{name} "$1" >&-', checkpoint) == (0, "")


def test_errors_do_not_go_to_the_output(checkpoint: Folder) -> None:
    """Also if standard error is closed."""
    assert in_a_shell('du "$1/nowhere" 2>&-', checkpoint) == (1, "")
