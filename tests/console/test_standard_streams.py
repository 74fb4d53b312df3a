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
FULL = "statefun: standard output cannot be written: No space left on device\n"


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
        pytest.param(
            UTF_8,
            b"caf\xe9",
            b"caf\\udce9",
            marks=pytest.mark.skipif(
                sys.platform != "linux", reason="other systems refuse names that are not UTF-8"
            ),
        ),
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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", ["du", "status --json"])
def test_a_full_output_ends_a_command_without_a_traceback(
    checkpoint: Folder, name: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one sentence."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert in_a_shell(f'{name} "$1" > /dev/full', checkpoint) == (1, FULL)


@pytest.mark.parametrize("name", ["du", "status --json"])
def test_a_closed_output_ends_no_command(checkpoint: Folder, name: str) -> None:
    """Who closes the output does not want it."""
    assert in_a_shell(f'{name} "$1" >&-', checkpoint) == (0, "")


PROGRAM = """
import sys
from statefun import cli
from statefun.sdk.errors import EngineError

def fail():
    print("done")
    {failure}

cli._run = lambda given: fail()
sys.exit(cli.main([]))
"""


def program(redirections: str, failure: str) -> tuple[int, str]:
    """Run a command that prints a word and fails; return its exit code and what it has printed as errors."""
    text = PROGRAM.format(failure=failure)
    ended = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {redirections}', sys.executable, text],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_failure_of_another_file_is_no_failure_of_the_output(
    unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may be on one full disk: an error of the command itself is shown before that of its output."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)

    code, errors = program("> /dev/null", "open('/dev/full', 'wb', 0).write(b'1')")
    assert code == 1
    assert errors.endswith("OSError: [Errno 28] No space left on device\n")

    # Without a buffer, the command itself meets the failure.
    own = "" if unbuffered else "statefun: [SF900] the broker is lost\n"
    assert program("> /dev/full", "raise EngineError('the broker is lost')") == (1, own + FULL)


def test_what_is_written_to_a_closed_stream_gets_into_no_file(tmp_path: Path) -> None:
    """The standard streams keep their file descriptors, to which native code writes."""
    file = tmp_path / "file"
    action = (
        f"import os; file = open({str(file)!r}, 'w'); os.write(2, b'lost'); os.write(1, b'lost')"
    )

    assert program("<&- >&- 2>&-", action) == (0, "")

    assert file.read_text() == ""


def test_errors_do_not_go_to_the_output(checkpoint: Folder) -> None:
    """Also if standard error is closed."""
    assert in_a_shell('du "$1/nowhere" 2>&-', checkpoint) == (1, "")
