# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from small_checkpoint import small_checkpoint, write_batch

from statefun.inspect.snapshot_files import SNAPSHOT, Archive, SnapshotFacts, SnapshotFiles
from statefun.inspect.snapshots import restore_snapshot, take_snapshot
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.sdk.errors import CheckpointError


@pytest.fixture
def stored(checkpoint: Path) -> Folder:
    """Return a checkpoint with a committed micro-batch and its states."""
    return small_checkpoint(checkpoint)


@pytest.fixture
def target(tmp_path: Path) -> Folder:
    """Return the folder of a snapshot that does not exist yet."""
    return Folder.at(tmp_path / "target")


def archive_of(target: Folder) -> Archive:
    """Return the archive of a snapshot."""
    archive = SnapshotFacts.read(target).archive
    assert archive is not None
    return archive


def take_loose(stored: Folder, target: Folder) -> None:
    """Make a snapshot as earlier versions have made it."""
    shutil.copytree(stored.location, target.location)
    content = {"batch": 0, "query": "query", "created": "2026-11-25T04:47:10+00:00"}
    write_framed(target, SNAPSHOT, json.dumps(content).encode())


def test_a_snapshot_of_an_earlier_version_can_be_restored_and_replaced(
    stored: Folder, target: Folder, tmp_path: Path
) -> None:
    """All its files lie in its folder; a later snapshot keeps the states, and deletes the others."""
    take_loose(stored, target)
    restore_snapshot(target, Folder.at(tmp_path / "copy"))
    assert set(Folder.at(tmp_path / "copy").sizes()) == set(stored.sizes())
    write_batch(stored, 1)

    assert take_snapshot(stored, target).batch == 1
    restore_snapshot(target, Folder.at(tmp_path / "later"))

    assert set(Folder.at(tmp_path / "later").sizes()) == set(stored.sizes())
    archive = archive_of(target).name
    states = {path for path in stored.sizes() if path.startswith("state/")}
    assert set(target.sizes()) == {SNAPSHOT, "snapshot.lock", archive, *states}


def test_files_that_an_earlier_version_has_lost_are_named(stored: Folder, target: Folder) -> None:
    """The new checkpoint is not begun."""
    take_loose(stored, target)
    target.remove("ingresses.json")

    with pytest.raises(CheckpointError, match=r"target/ingresses\.json is missing"):
        restore_snapshot(target, target.child("copy"))
    assert not target.child("copy").exists()


@pytest.mark.parametrize("moment", [SNAPSHOT, "archive", "1_3f1b.changelog"])
@pytest.mark.parametrize("take", [take_snapshot, take_loose])
def test_a_snapshot_that_is_replaced_during_a_restore_is_not_mixed(  # noqa: PLR0917 - fixtures
    stored: Folder,
    target: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    take: Callable[[Folder, Folder], object],
) -> None:
    """What is restored is of one micro-batch, or the command fails, and can be repeated."""
    stored.write("waiting.json", b"after batch 0")
    take(stored, target)
    read, copy = Folder.read, Folder.at(tmp_path / "copy")
    name = moment
    if moment == "archive":
        name = "metadata" if take is take_loose else archive_of(target).name

    def read_and_replace(folder: Folder, read_name: str) -> bytes:
        content = read(folder, read_name)
        if folder.location.startswith(target.location) and read_name == name:
            monkeypatch.setattr(Folder, "read", read)
            write_batch(stored, 1)
            stored.child("state").child("0").child("0").remove("1_3f1b.changelog")
            stored.write("waiting.json", b"after batch 1")
            take_snapshot(stored, target)
        return content

    monkeypatch.setattr(Folder, "read", read_and_replace)
    try:
        batch = restore_snapshot(target, copy).batch
    except CheckpointError as error:
        assert "is missing; if a later snapshot has just replaced this one" in error.message  # noqa: PT017 - to refuse is right
        copy = Folder.at(tmp_path / "again")
        batch = restore_snapshot(target, copy).batch
    assert copy.read("waiting.json") == b"after batch %d" % batch
    assert copy.child("state").sizes() == {f"0/0/{batch + 1}_3f1b.changelog": 7}
    assert IngressOrder.read(copy).names == ["t/in"]


@pytest.mark.parametrize("content", [b"[]", json.dumps({"batch": "x"}).encode()])
def test_a_damaged_snapshot_is_an_error(
    stored: Folder, target: Folder, tmp_path: Path, content: bytes
) -> None:
    """The error names the file."""
    take_snapshot(stored, target)
    write_framed(target, SNAPSHOT, content)

    with pytest.raises(CheckpointError, match=r"snapshot\.json is damaged"):
        restore_snapshot(target, Folder.at(tmp_path / "copy"))


def test_damaged_files_of_a_snapshot_are_found(
    stored: Folder, target: Folder, tmp_path: Path
) -> None:
    """Neither half of an archive nor one with other bytes is restored, nor a state of another size.

    The names in the list at the end of an archive have no checksum in it.
    """
    stored.write("waiting.json", b"after batch 0")
    take_snapshot(stored, target)
    name = archive_of(target).name
    content = target.read(name)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        in_file = archive.getinfo("checkpoint/offsets/0").header_offset + 60
    in_list = content.rindex(b"checkpoint/waiting.json")
    copies = map(str, range(10))
    for other in (
        content[:100],
        *(
            content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
            for place in (in_file, in_list)
        ),
    ):
        target.write(name, other)
        with pytest.raises(CheckpointError, match=f"target/{name} is damaged"):
            restore_snapshot(target, Folder.at(tmp_path / next(copies)))
    target.write(name, content)
    target.child("state").child("0").child("0").write("1_3f1b.changelog", b"chan")

    with pytest.raises(CheckpointError, match=r"1_3f1b.changelog is damaged .*4 bytes"):
        restore_snapshot(target, Folder.at(tmp_path / next(copies)))


def test_an_archive_has_what_was_written(target: Folder) -> None:
    """Each archive has a name of its own."""
    contents = {"ingresses.json": b"i", "offsets/7": b"o", "connectors/t%2Fin/1": b""}
    files = SnapshotFiles(contents, {"state/0/1/8_3f1b.changelog": 9})

    first, second = (files.write(target, 7) for _ in range(2))

    facts = SnapshotFacts(7, "query", datetime(2026, 1, 1, tzinfo=timezone.utc), first)
    assert SnapshotFiles.read(target, facts) == files
    assert first.name != second.name
    assert target.sizes() == {each.name: each.size for each in (first, second)}


@pytest.mark.parametrize(("place", "value"), [(8, 1), (10, 99)])  # flags, method
def test_an_archive_that_python_cannot_read_is_an_error(
    target: Folder, place: int, value: int
) -> None:
    """Such as one with an unknown method of compression, or with a password."""
    name = SnapshotFiles({"ingresses.json": b"i", "offsets/7": b"o"}, {}).write(target, 7).name
    other = bytearray(target.read(name))
    other[other.index(b"PK\x01\x02") + place] = value
    target.write(name, bytes(other))
    archive = Archive.of(name, bytes(other))
    facts = SnapshotFacts(7, "query", datetime(2026, 1, 1, tzinfo=timezone.utc), archive)

    with pytest.raises(CheckpointError, match=f"target/{name} is damaged"):
        SnapshotFiles.read(target, facts)
