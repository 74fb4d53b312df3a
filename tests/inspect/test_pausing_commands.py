# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from statefun.cli import main
from statefun.inspect.status_command import NOT_HEALTHY
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.checkpoint.lock import checkpoint_lock, unlocked
from statefun.runtime.checkpoint.orders import Order, Orders
from statefun.runtime.checkpoint.pauses import Parts, Paused, read_paused, write_paused

PARTS = Parts(frozenset({"t/users"}), frozenset({"t/greets", "t/letters"}))


@pytest.fixture
def folder(checkpoint: Path) -> Folder:
    """Return the checkpoint of an application that has an ingress and two egresses."""
    folder = Folder.at(checkpoint)
    IngressOrder(["t/users"]).write(folder)
    write_paused(folder, PARTS, Paused())
    folder.child("offsets").write("0", b'v1\n{}\n{"users":{"0":7}}\n{"batch":-1,"tick":-1}')
    folder.child("commits").write("0", b"v1\n{}")
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run a command, and return what it prints."""
    assert main(arguments) == code
    printed = capsys.readouterr()
    return (printed.out or printed.err).strip()


def test_parts_are_paused_and_resumed(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """To pause what is paused changes nothing, and is no error."""
    place = folder.shown
    said_first = said(capsys, "pause", place, "--egress", "t/greets")
    assert said_first == "egress t/greets is paused, from its next start on"
    assert (
        said(capsys, "pause", place, "--egress", "t/greets") == "egress t/greets is paused already"
    )
    assert said(capsys, "resume", place) == "the application is not paused"
    with checkpoint_lock(folder):
        assert said(capsys, "pause", place, "--ingress", "t/users") == "ingress t/users is paused"
        assert said(capsys, "pause", place) == "the application is paused"
        assert said(capsys, "resume", place) == "the application is resumed"

        assert json.loads(said(capsys, "pause", place, "--egress=t/greets", "--json")) == {
            "part": "egress",
            "id": "t/greets",
            "paused": True,
            "changed": False,
            "running": True,
        }
    paused = Paused(False, frozenset({"t/users"}), frozenset({"t/greets"}))
    assert read_paused(folder) == (PARTS, paused)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--egress", "t/greet"], "the application has no egress t/greet; did you mean t/greets?"),
        (["--ingress", "other"], "the application has no ingress other; there are: t/users"),
    ],
)
def test_an_unknown_part_is_refused(
    folder: Folder, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    """The error names the nearest one, or all."""
    assert text in said(capsys, "pause", folder.shown, *arguments, code=1)
    assert read_paused(folder) == (PARTS, Paused())


def test_a_checkpoint_without_parts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is no checkpoint, and a checkpoint that no application with parts has used."""
    assert "there is no checkpoint at" in said(capsys, "pause", str(tmp_path), code=1)
    IngressOrder(["t/users"]).write(Folder.at(tmp_path))
    assert "start the application" in said(capsys, "status", str(tmp_path), code=1)


def test_orders_go_to_running_applications_only(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """An application cannot drain while it must not deliver or publish."""
    orders = Orders(folder)
    for command in ("drain", "restart", "stop"):
        assert "no application runs with" in said(capsys, command, folder.shown, code=1)
    assert orders.next() is None

    with checkpoint_lock(folder):
        for order in Order:
            assert json.loads(said(capsys, order.value, folder.shown, "--json")) == {
                "order": order.value
            }
            assert orders.next() is order
        write_paused(folder, PARTS, Paused(egresses=PARTS.egresses))
        refused = said(capsys, "drain", folder.shown, code=1)
    assert "egress t/greets, egress t/letters: paused" in refused
    place = shlex.quote(folder.shown)
    assert refused.endswith(f"statefun resume {place} --egress t/greets")
    assert orders.next() is None


def test_a_paused_part_that_was_removed_does_not_keep_from_draining(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can be resumed, in case that it comes back, but not paused again."""
    removed = Paused(False, frozenset({"t/former"}), frozenset({"t/old"}))
    write_paused(folder, PARTS, removed)
    orders = Orders(folder)
    with checkpoint_lock(folder):
        said(capsys, "drain", folder.shown)
        assert orders.next() is Order.DRAIN
        write_paused(folder, PARTS, Paused(egresses=frozenset({"t/old", "t/greets"})))
        refused = said(capsys, "drain", folder.shown, code=1)
        assert "egress t/greets: paused" in refused
        # The command that the error names can be run, whatever the name of the folder is.
        command = shlex.split(refused.partition("first run: ")[2])
        assert said(capsys, *command[1:]) == "egress t/greets is resumed"
        said(capsys, "drain", folder.shown)

    write_paused(folder, PARTS, removed)
    assert "no egress t/old" in said(capsys, "pause", folder.shown, "--egress", "t/old", code=1)
    assert "no egress t/odd" in said(capsys, "resume", folder.shown, "--egress", "t/odd", code=1)
    resumed = said(capsys, "resume", folder.shown, "--egress", "t/old")
    assert resumed == "egress t/old is resumed, from its next start on"
    said(capsys, "resume", folder.shown, "--ingress", "t/former")
    assert read_paused(folder) == (PARTS, Paused())


def test_the_status_shows_progress_and_pauses(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as a table and as JSON; a probe fails for an application that makes no progress."""
    write_paused(folder, PARTS, Paused(application=True, egresses=frozenset({"t/letters"})))
    check = ["status", folder.shown, "--check"]
    assert "application: STOPPED" in said(capsys, *check, code=NOT_HEALTHY)
    with checkpoint_lock(folder):
        assert said(capsys, *check).splitlines() == [
            "application: PAUSED",
            "newest committed micro-batch: 0",
            "micro-batches in the outbox: 0",
            "part     id         state",
            "ingress  t/users    PAUSED",
            "egress   t/greets   RUNNING",
            "egress   t/letters  PAUSED",
        ]
        folder.child("offsets").write("1", b"v1\n{}")
        status = json.loads(said(capsys, *check, "--json"))
        assert (status["state"], status["batch"], status["outbox"]) == ("PAUSED", 0, 0)
        assert status["planned_seconds_ago"] >= 0
        assert status["parts"][0] == {"kind": "ingress", "id": "t/users", "state": "PAUSED"}
        assert "micro-batch 1 was planned" in said(
            capsys, *check, "--patience", "0", code=NOT_HEALTHY
        )


def test_what_no_lock_shows_is_not_said(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """A run with checkpoint-lock=none that was killed must not pass a probe, and orders are for a run that may be over."""
    run = unlocked(folder)
    run.__enter__()  # a killed run never leaves the block
    check = ["status", folder.shown, "--check"]

    lines = said(capsys, *check, code=NOT_HEALTHY).splitlines()
    assert lines[0] == "application: UNKNOWN (checkpoint-lock=none: no lock shows whether it runs)"
    assert lines[-1].split() == ["egress", "t/letters", "UNKNOWN"]
    status = json.loads(said(capsys, *check, "--json", code=NOT_HEALTHY))
    assert {status["state"], *(part["state"] for part in status["parts"])} == {"UNKNOWN"}
    assert said(capsys, "stop", folder.shown).endswith(
        "if the application runs, which no lock shows: the application ends"
    )
    assert Orders(folder).next() is Order.STOP
    paused = said(capsys, "pause", folder.shown, "--egress", "t/greets")
    assert paused.endswith("is paused, if the application runs, or from its next start on")
    paused = said(capsys, "pause", folder.shown, "--egress", "t/greets", "--json")
    assert json.loads(paused)["running"] is None
    lines = said(capsys, *check, code=NOT_HEALTHY).splitlines()
    assert [line.split()[-1] for line in lines[-3:]] == ["UNKNOWN", "PAUSED", "UNKNOWN"]
    said(capsys, "pause", folder.shown)
    lines = said(capsys, *check, code=NOT_HEALTHY).splitlines()
    assert lines[0].startswith("application: UNKNOWN")
    assert [line.split()[-1] for line in lines[-3:]] == ["PAUSED", "PAUSED", "UNKNOWN"]


ANOTHER_USER = 65534
IMPORTS = f"""
import os, sys
from pathlib import Path
from statefun.cli import main
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.control import Control

place, user = sys.argv[1], {ANOTHER_USER}
main(["status", place])  # imports what another user may not be able to read
"""
BECOME_ANOTHER_USER = """
os.setgid(user), os.setuid(user)
print("as another user", flush=True)
"""
PROBE = f"{IMPORTS}{BECOME_ANOTHER_USER}sys.exit(main(['status', place, '--check']))"
PAUSE = f"""{IMPORTS}
os.umask(0o077)  # as the shell of root on hardened systems
main(["pause", place, "--ingress", "t/users"])
{BECOME_ANOTHER_USER}
with Control().obeying(Folder.at(place)) as _:
    main(["status", place])
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def open_folder() -> Iterator[Folder]:
    """Yield the checkpoint of an application that does not run, in a folder that all users can read."""
    with TemporaryDirectory() as place:  # those of pytest are closed to other users
        Path(place).chmod(0o755)
        folder = Folder.at(place)
        IngressOrder(["t/users"]).write(folder)
        write_paused(folder, PARTS, Paused())
        with checkpoint_lock(folder):
            pass
        yield folder


def done_as_another_user(program: str, folder: Folder) -> tuple[int, str]:
    """Run a program; return its exit code, and what it has printed as another user."""
    done = subprocess.run(
        [sys.executable, "-c", program, folder.location],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.partition("as another user\n")[2] + done.stderr


@as_root
def test_the_status_needs_no_right_to_write(open_folder: Folder) -> None:
    """A probe of another user sees whether the application runs."""
    code, text = done_as_another_user(PROBE, open_folder)
    assert (code, text.splitlines()[0]) == (NOT_HEALTHY, "application: STOPPED")
    with checkpoint_lock(open_folder):
        code, text = done_as_another_user(PROBE, open_folder)
    assert (code, text.splitlines()[0]) == (0, "application: RUNNING")


@as_root
def test_an_application_of_another_user_can_read_what_root_has_paused(open_folder: Folder) -> None:
    """Otherwise its next start would fail."""
    for path in (Path(open_folder.location), *Path(open_folder.location).iterdir()):
        os.chown(path, ANOTHER_USER, ANOTHER_USER)

    code, text = done_as_another_user(PAUSE, open_folder)

    assert code == 0, text
    assert ["ingress", "t/users", "STOPPED"] in [line.split() for line in text.splitlines()]
