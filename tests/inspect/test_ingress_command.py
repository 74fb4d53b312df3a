# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from statefun.cli import main
from statefun.inspect import ingress_positions
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.connector_folder import connector_folder
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.ingress.identities import CLUSTERS_FILE
from statefun.sdk.address import TypeName

CONNECTOR = "t/files (example/ingress)"


@pytest.fixture
def folder(checkpoint: Path) -> Folder:
    """Return a checkpoint that reads two ingresses, and has read a third."""
    folder = Folder.at(checkpoint)
    IngressOrder(["t/users", CONNECTOR], {"t/old": {"old": {"0": 9}}}).write(folder)
    lines = ['{"users":{"1":3,"0":7}}', '{"log":2}', '{"batch":-1,"tick":-1}']
    folder.child("offsets").write("0", "\n".join(["v1", "{}", *lines]).encode())
    folder.child("commits").write("0", b"v1\n{}")
    write_framed(folder, CLUSTERS_FILE, b'{"t/users": {"cluster": "c"}, "t/old": {"cluster": "d"}}')
    connector_folder(folder, TypeName("t", "files")).write("1", b"a log")
    return folder


def identities(folder: Folder) -> dict[str, str]:
    """Return the stored ids of clusters by ingress."""
    content = json.loads(read_framed(folder, CLUSTERS_FILE))
    return {id_: identity["cluster"] for id_, identity in content.items()}


def test_the_positions_of_all_ingresses_are_listed(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of removed ingresses are, too."""
    assert main(["ingress", "list", folder.location]) == 0
    table = capsys.readouterr().out
    assert main(["ingress", "list", "--json", folder.location]) == 0
    document = json.loads(capsys.readouterr().out)

    assert [line.split(None, 1) for line in table.splitlines()] == [
        ["ingress", "state    next offset"],
        ["t/users", "read     users/0: 7, users/1: 3"],
        ["t/files", '(example/ingress)  read     {"log": 2}'],
        ["t/old", "removed  old/0: 9"],
    ]
    assert document[2] == {"ingress": "t/old", "removed": True, "offset": {"old": {"0": 9}}}


def test_a_renamed_ingress_keeps_its_position(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its offset, the id of its cluster, and the files of its connector belong to the new name."""
    names = [("t/users", "t/persons"), ("t/old", "t/new"), (CONNECTOR, "t/logs (example/ingress)")]
    for former, name in names:
        assert main(["ingress", "rename", folder.location, former, name]) == 0

    order = IngressOrder.read(folder)
    assert [*order.names] == ["t/persons", "t/logs (example/ingress)"]
    assert order.removed == {"t/new": {"old": {"0": 9}}}
    assert CommitLog(folder).end_offsets(0)[0] == {"users": {"1": 3, "0": 7}}
    assert identities(folder) == {"t/persons": "c", "t/new": "d"}
    assert connector_folder(folder, TypeName("t", "logs")).read("1") == b"a log"
    assert "ingress t/persons goes on where ingress t/users has stopped" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["t/users", "t/old", CONNECTOR])
def test_a_forgotten_ingress_leaves_nothing(folder: Folder, name: str) -> None:
    """The other ingresses keep their positions."""
    ends = dict(zip(["t/users", CONNECTOR], CommitLog(folder).end_offsets(0), strict=False))

    assert main(["ingress", "forget", "--yes", folder.location, name]) == 0

    order = IngressOrder.read(folder)
    assert name not in {*order.names, *order.removed, *identities(folder)}
    assert [*order.names] == [each for each in ends if each != name]
    assert CommitLog(folder).end_offsets(0)[:-1] == [ends[each] for each in order.names]
    files = connector_folder(folder, TypeName("t", "files"))
    assert bool(files.sizes()) == (name != CONNECTOR)


def test_positions_are_those_at_which_a_bounded_run_has_stopped(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark may have planned further, and the next start lowers its offsets."""
    write_framed(folder, "stops.json", b'{"t/users": {"users": {"0": 4, "1": 9}}}')

    assert main(["ingress", "list", folder.location]) == 0

    assert "users/0: 4, users/1: 3" in capsys.readouterr().out


def test_stop_positions_do_not_count_for_another_ingress_of_the_name(folder: Folder) -> None:
    """They are in the offsets before a name can be given to another ingress."""
    write_framed(folder, "stops.json", b'{"t/users": {"users": {"0": 4, "1": 9}}}')

    assert main(["ingress", "rename", folder.location, "t/users", "t/persons"]) == 0
    assert main(["ingress", "rename", folder.location, "t/old", "t/users"]) == 0

    assert CommitLog(folder).end_offsets(0)[0] == {"users": {"1": 3, "0": 4}}
    assert not folder.has("stops.json")


@pytest.mark.parametrize("action", ["forget", "rename"])
def test_an_egress_of_the_same_id_keeps_its_files(folder: Folder, action: str) -> None:
    """Its lanes have their progress in the same folder."""
    files = connector_folder(folder, TypeName("t", "files"))
    for name in ("lanes", "lane.0"):
        files.write(name, b"progress")

    more = ["t/logs (example/ingress)"] if action == "rename" else ["--yes"]
    assert main(["ingress", action, folder.location, CONNECTOR, *more]) == 0

    assert set(files.sizes()) == {"lanes", "lane.0"}


def test_files_of_another_ingress_are_not_mixed(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may be left by an ingress that nobody declares any more."""
    connector_folder(folder, TypeName("t", "logs")).write("1", b"another log")

    command = ["ingress", "rename", folder.location, CONNECTOR, "t/logs (example/ingress)"]
    assert main(command) == 1

    assert "t%2Flogs has files already, which belong to another" in capsys.readouterr().err
    assert IngressOrder.read(folder).names == ["t/users", CONNECTOR]


def test_a_command_that_was_interrupted_can_be_repeated(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ingress is listed until nothing of it is left."""

    def crash(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(ingress_positions, "clear_connector_folder", crash)
        assert main(["ingress", "forget", "--yes", folder.location, CONNECTOR]) == 1
    assert main(["ingress", "forget", "--yes", folder.location, CONNECTOR]) == 0

    assert connector_folder(folder, TypeName("t", "files")).sizes() == {}
    assert IngressOrder.read(folder).removed == {"t/old": {"old": {"0": 9}}}


def test_a_file_that_an_interrupted_command_has_copied_is_no_other_ingress(folder: Folder) -> None:
    """An object store moves a file by copying it, so that a crash leaves both; further files may follow."""
    connector_folder(folder, TypeName("t", "logs")).write("1", b"a log")
    connector_folder(folder, TypeName("t", "files")).write("2", b"more")

    assert main(["ingress", "rename", folder.location, CONNECTOR, "t/logs (example/ingress)"]) == 0

    assert connector_folder(folder, TypeName("t", "files")).sizes() == {}
    assert connector_folder(folder, TypeName("t", "logs")).sizes() == {"1": 5, "2": 4}


def test_nothing_is_forgotten_by_accident(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --yes, the command says what it would delete."""
    assert main(["ingress", "forget", folder.location, "t/users"]) == 1

    assert "would delete the offsets of ingress t/users (users/0: 7, users/1: 3); add --yes" in (
        capsys.readouterr().err
    )
    assert IngressOrder.read(folder).names == ["t/users", CONNECTOR]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rename", "t/user", "t/b"], "has no ingress t/user; did you mean t/users?"),
        (
            ["forget", "--yes", "x"],
            "has no ingress x; it has t/files (example/ingress), t/old, t/users",
        ),
        (["rename", "t/users", "t/old"], "already has offsets of ingress t/old"),
        (["rename", "t/users", "persons"], "persons"),
        (["rename", CONNECTOR, "t/b"], "offsets of different kinds of ingresses"),
    ],
)
def test_a_wrong_name_is_one_sentence(
    folder: Folder, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Nothing is changed."""
    action, *rest = arguments
    flags = [each for each in rest if each.startswith("--")]
    assert main(["ingress", action, *flags, folder.location, *rest[len(flags) :]]) == 1

    assert message in capsys.readouterr().err
    assert IngressOrder.read(folder).names == ["t/users", CONNECTOR]


def test_nothing_is_changed_under_an_application(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint is locked while an application runs; listing is possible."""
    with checkpoint_lock(folder):
        assert main(["ingress", "rename", folder.location, "t/users", "t/b"]) == 1
        assert main(["ingress", "list", folder.location]) == 0

    assert "is in use" in capsys.readouterr().err


def test_a_mistyped_path_is_no_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence says so."""
    assert main(["ingress", "list", str(tmp_path / "missing")]) == 1

    assert f"there is no checkpoint at {tmp_path / 'missing'}" in capsys.readouterr().err


def test_other_file_systems_have_no_lock(capsys: pytest.CaptureFixture[str]) -> None:
    """The user has to say that no application runs."""
    assert main(["ingress", "forget", "--yes", "mock://bucket/checkpoint", "t/a"]) == 1

    assert "cannot be locked: make sure that no application runs with it" in capsys.readouterr().err
