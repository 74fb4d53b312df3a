# SPDX-License-Identifier: Apache-2.0
"""``statefun state set``, ``delete``, ``apply`` and ``log``, without the micro-batch that makes the changes."""

from __future__ import annotations

import io
import json
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pytest
from stored_checkpoint import CHECKPOINTS

from statefun.cli import main
from statefun.engine.address_keys import address_key
from statefun.inspect.repair_plan import requests_in
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.checkpoint.repair_log import Change, RepairLog
from statefun.sdk.address import Address
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.functions import default_functions

ADA = "test.fns/account/Ada"
KEY = address_key(Address("test.fns/account", "Ada"))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return a copy of the stored checkpoint, whose application is stopped."""
    return Path(shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", tmp_path / "stored"))


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the contents of all files below a folder, besides those of locks."""
    files = [each for each in folder.rglob("*") if each.is_file() and each.suffix != ".lock"]
    return {each: each.read_bytes() for each in files}


def refused(capsys: pytest.CaptureFixture[str], checkpoint: Path, *arguments: str) -> str:
    """Run a command that is refused; return its one sentence."""
    before = contents(checkpoint)
    assert main(["state", *arguments, "--checkpoint", str(checkpoint)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert contents(checkpoint) == before, "nothing is changed"
    assert output.err.count("\n") == 1
    return output.err.removeprefix("statefun: ").rstrip()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["set", ADA, "totl", "5"],
            "function test.fns/account has no value totl; did you mean total?",
        ),
        (["set", ADA, "total", "five"], f"value total of {ADA} cannot be set: 'five' is not JSON"),
        (["set", ADA, "total", "5.5"], "it is no value of type io.statefun.types/int"),
        (
            ["set", ADA, "total", "ff", "--encoding", "hex"],
            "does not decode as io.statefun.types/int",
        ),
        (["set", ADA, "total", "x", "--encoding", "hex"], "the value is not hex"),
        (
            ["set", "test.fns/account/Adda", "total", "5"],
            "did you mean Ada? (to give a new address its first state, add --new",
        ),
        (["set", "test.fns/acount/Ada", "total", "5"], "did you mean test.fns/account?"),
        (["set", "Ada", "total", "5"], "an address must be <namespace>/<name>/<id>"),
        (
            ["set", "statefun.timers/bucket/1", "a", "5"],
            "which the runtime reserves for itself",
        ),
        (["delete", ADA], "give the names of the values to delete, or --all"),
        (["delete", ADA, "total", "--all"], "give the names of the values to delete, or --all"),
        (["delete", ADA, "notes"], f"{ADA} has no value notes; did you mean note?"),
        (["apply", "missing.yaml"], "file missing.yaml cannot be read"),
    ],
)
def test_changes_that_are_not_valid_are_refused(
    stored: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    """Before anything is written, in one sentence; with and without a dry run."""
    assert reason in refused(capsys, stored, *arguments)
    assert reason in refused(capsys, stored, *arguments, "--dry-run")


def test_nothing_is_deleted_at_an_unknown_address(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option for new addresses would not help."""
    error = refused(capsys, stored, "delete", "test.fns/account/Adda", "total")

    assert error.endswith("has nothing about test.fns/account/Adda in batch 2; did you mean Ada?")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "must be a list of changes"),
        ("{}", "must be a list of changes"),
        ("[", "file f.yaml is not YAML: line 1, column 2 (expected the node content"),
        ("- {set: {pin: *hunter2}}", "file f.yaml is not YAML: line 1, column 15"),
        ("- {address: a/b/c, set: {a: 1, a: 2}}", "line 1, column 32: this key occurs twice"),
        ("- {address: a/b/c, set: {a: 2026-02-30}}", "line 1, column 29: this date or number"),
        ("- 5", "change 1 in file f.yaml must have the key address"),
        ("- {address: a/b/c}", "must have the key set, or the key delete"),
        ("- {address: a/b/c, sett: {a: 1}}", "has the unknown key sett; did you mean set?"),
        ("- {address: a/b/c, set: [a]}", "must have names of values as its keys"),
        ("- {address: a/b/c, delete: {a: 1}}", "must be a list of names of values, or all"),
        ("- {address: a/b/c, set: {a: {hex: zz}}}", "the value is not hex"),
    ],
)
def test_files_of_another_form_are_refused(content: str, reason: str) -> None:
    """With the place in the file."""
    with pytest.raises(ConfigurationError) as caught:
        requests_in(content, "f.yaml")

    assert reason in caught.value.message
    assert "hunter2" not in caught.value.message, "it may be a secret"


def test_a_dry_run_shows_what_would_be_changed(
    stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all changes of a file, on addresses that there are and new ones; nothing is changed."""
    file = f"""
- address: {ADA}
  set: {{total: 12, note: {{base64: CgJoaQ==}}}}
- {{address: test.fns/account/Bob, new: true, set: {{total: 3}}}}
"""
    before = contents(stored)
    monkeypatch.setattr("sys.stdin", io.StringIO(file))
    assert main(["state", "apply", "-", "--dry-run", "--checkpoint", str(stored)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "address               value  before    after",
        "test.fns/account/Ada  total  2         12",
        "test.fns/account/Ada  note   reminded  hi",
        "test.fns/account/Bob  total  -         3",
        "3 changes would be made; nothing was changed",
    ]
    command = ["state", "delete", ADA, "--all", "--dry-run", "--json", "--checkpoint", str(stored)]
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["batch"] is None
    assert [
        (each["name"], each["before"]["value"], each["after"]) for each in document["changes"]
    ] == [
        ("total", 2, None),
        ("note", "reminded", None),
    ]
    assert contents(stored) == before


def test_a_value_is_not_changed_twice(
    stored: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What it was before would not be what is printed."""
    file = tmp_path / "changes.yaml"
    file.write_text(f"[{{address: {ADA}, set: {{total: 1}}}}, {{address: {ADA}, delete: all}}]")

    assert f"value total of {ADA} is changed twice" in refused(capsys, stored, "apply", str(file))


def test_a_checkpoint_in_use_is_refused(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that may be in use without a lock."""
    with checkpoint_lock(Folder.at(stored)):
        assert "is in use by process" in refused(capsys, stored, "set", ADA, "total", "5")
    (stored / "unlocked").touch()
    assert "add --no-lock" in refused(capsys, stored, "set", ADA, "total", "5")


@pytest.mark.parametrize("action", [["set", ADA, "total", "5"], ["delete", ADA, "--all"], ["log"]])
def test_repairs_need_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: list[str]
) -> None:
    """A folder whose name has a typo is not created."""
    folder = tmp_path / "typo"

    assert main(["state", *action, "--checkpoint", str(folder)]) == 1
    assert f"there is no checkpoint at {folder}" in capsys.readouterr().err
    assert not folder.exists()


def test_the_log_names_who_changed_what(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And whether it is applied: an interrupted repair waits, and no dry run comes before it."""
    assert main(["state", "log", "--checkpoint", str(stored)]) == 0
    assert capsys.readouterr().out == f"0 changes by hand in {stored}\n"
    text = "io.statefun.types/string"
    before = AddressState.Value(name="note", typename=text, value=b"\n\2hi")
    when = datetime(2026, 5, 4, 12, 30, tzinfo=timezone.utc)
    RepairLog(Folder.at(stored)).accept("ada@host", when, [Change(KEY, "note", before, None)])
    waits = "a repair by ada@host at 2026-05-04 12:30:00 UTC is not applied yet: the next start applies it"

    assert main(["state", "log", "--checkpoint", str(stored)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "time (UTC)           by        address               value  before  after",
        "2026-05-04 12:30:00  ada@host  test.fns/account/Ada  note   hi      -",
        f"1 change by hand in {stored}; {waits}",
    ]
    assert main(["state", "log", "--json", "--checkpoint", str(stored)]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["who"], change["when"], change["applied"]) == (
        "ada@host",
        "2026-05-04T12:30:00Z",
        False,
    )
    assert "is accepted, and not applied yet" in refused(
        capsys, stored, "set", ADA, "total", "5", "--dry-run"
    )


RENAMED = """
from statefun import Context, IntType, Message, StatefulFunctions, StringType, ValueSpec

SPECS = [ValueSpec("sum", IntType, renamed_from="total"), ValueSpec("note", StringType)]
functions = StatefulFunctions()


@functions.bind("test.fns/wallet", SPECS, renamed_from="test.fns/account")
def wallet(ctx: Context, message: Message) -> None:
    pass
"""


def test_renamed_functions_and_values_are_changed_by_their_present_names(
    stored: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value that is stored under its former name moves, so that no function finds both."""
    # Other tests of this process have registered functions of other programs.
    monkeypatch.setattr(default_functions, "_functions", {})
    program = tmp_path / "app.py"
    program.write_text(RENAMED)
    options = ["--dry-run", "--checkpoint", str(stored), "--program", str(program)]
    assert main(["state", "set", "test.fns/wallet/Ada", "sum", "12", *options]) == 0
    assert main(["state", "set", "test.fns/wallet/Bob", "sum", "1", "--new", *options]) == 0
    assert main(["state", "delete", "test.fns/wallet/Ada", "sum", *options]) == 0

    assert [line.split() for line in capsys.readouterr().out.splitlines() if "/" in line] == [
        ["test.fns/wallet/Ada", "sum", "-", "12"],
        ["test.fns/wallet/Ada", "total", "2", "-"],
        ["test.fns/wallet/Bob", "sum", "-", "1"],
        ["test.fns/wallet/Ada", "total", "2", "-"],
    ]
