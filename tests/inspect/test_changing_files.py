# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from small_checkpoint import small_checkpoint, write_batch

from statefun.inspect.changing_files import ChangingFiles
from statefun.inspect.snapshots import restore_snapshot, take_snapshot
from statefun.runtime.checkpoint.checkpoint_files import FileFacts
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.ingress_changes import replace_order
from statefun.runtime.checkpoint.ingress_order import STOPS, IngressOrder
from statefun.runtime.checkpoint.local_files import LocalFiles
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE
from statefun.runtime.ingress.stopping import rewrite_read_offsets
from statefun.sdk.errors import CheckpointError

Patch = pytest.MonkeyPatch


@pytest.fixture
def stored(checkpoint: Path) -> Folder:
    """Return a checkpoint with a committed micro-batch and its states."""
    return small_checkpoint(checkpoint)


@pytest.fixture
def target(tmp_path: Path) -> Folder:
    """Return the folder of a snapshot that does not exist yet."""
    return Folder.at(tmp_path / "target")


def when_read(patch: Patch, place: Folder, name: str, do: Callable[[], None]) -> None:
    """Call ``do`` once, after the file with this name in a folder was read for the first time."""
    read = Folder.read

    def read_and_do(folder: Folder, read_name: str) -> bytes:
        content = read(folder, read_name)
        if (folder.location, read_name) == (place.location, name):
            patch.setattr(Folder, "read", read)
            do()
        return content

    patch.setattr(Folder, "read", read_and_do)


def write_stops(folder: Folder, offset: int) -> None:
    """Write the stop offsets of a bounded run."""
    write_framed(folder, STOPS, json.dumps({"t/in": {"users": {"0": offset}}}).encode())


@pytest.mark.parametrize("moment", ["offsets/0", STOPS, "ingresses.json", "commits/0"])
def test_a_start_during_a_snapshot_loses_no_records(
    stored: Folder, target: Folder, tmp_path: Path, monkeypatch: Patch, moment: str
) -> None:
    """A start lowers offsets to the stops of a bounded run, and replaces the stops: the snapshot has both or neither."""
    # A run with available-now was to read up to offset 7; Spark has planned up to 10, and records 7 to 9 were left out.
    write_stops(stored, 7)

    def start() -> None:
        rewrite_read_offsets(stored)  # as the next run with available-now does at its start
        write_stops(stored, 15)

    place, _, name = moment.rpartition("/")
    with monkeypatch.context() as patch:
        when_read(patch, stored.child(place) if place else stored, name, start)
        take_snapshot(stored, target)
    assert CommitLog(stored).end_offsets(0)[0] == {"users": {"0": 7}}
    copy = Folder.at(tmp_path / "copy")
    restore_snapshot(target, copy)
    rewrite_read_offsets(copy)  # the start of the restored application

    assert CommitLog(copy).end_offsets(0)[0] == {"users": {"0": 7}}


@pytest.mark.parametrize("moment", ["ingresses.json", "offsets/0", "metadata"])
def test_ingresses_that_change_during_a_snapshot_are_copied_with_their_offsets(
    stored: Folder, target: Folder, tmp_path: Path, monkeypatch: Patch, moment: str
) -> None:
    """The order of the ingresses and the offsets in Spark's log are those of one moment."""

    def change() -> None:  # the program begins to read other, and no longer in
        order = IngressOrder(["t/other"], {"t/in": {"users": {"0": 10}}})
        replace_order(stored, order, {"t/other": {"others": {"0": 3}}})

    place, _, name = moment.rpartition("/")
    with monkeypatch.context() as patch:
        when_read(patch, stored.child(place) if place else stored, name, change)
        take_snapshot(stored, target)
    assert IngressOrder.read(stored).names == ["t/other"]
    copy = Folder.at(tmp_path / "copy")
    restore_snapshot(target, copy)

    ends = dict(zip(IngressOrder.read(copy).names, CommitLog(copy).end_offsets(0), strict=False))
    assert ends in ({"t/in": {"users": {"0": 10}}}, {"t/other": {"others": {"0": 3}}})


def test_files_of_committed_micro_batches_are_read_once(
    stored: Folder, target: Folder, tmp_path: Path, monkeypatch: Patch
) -> None:
    """If the application commits meanwhile, only what is new is read again: else a busy one is always faster."""
    for batch in range(1, 100):
        write_batch(stored, batch)
    read, reads, commits = Folder.read, list[str](), iter(range(100, 105))

    def read_and_commit(folder: Folder, name: str) -> bytes:
        reads.append(f"{folder.location.rpartition('/')[2]}/{name}")
        if reads[-1].endswith("/metadata"):
            batch = next(commits, None)
            if batch is not None:
                write_batch(stored, batch)
        return read(folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "read", read_and_commit)
        taken = take_snapshot(stored, target)

    assert taken.batch == 104
    assert (reads.count("commits/5"), reads.count("offsets/5")) == (1, 1)
    copy = Folder.at(tmp_path / "copy")
    restore_snapshot(target, copy)
    assert set(copy.sizes()) == set(stored.sizes())


def test_large_effects_of_the_newest_micro_batches_are_copied(
    stored: Folder, target: Folder, tmp_path: Path
) -> None:
    """Those of a batch that is no longer in the outbox are deleted from the snapshot with their folder."""
    for batch, name in ((0, "0-1-3f1b.arrow"), (1, "0-2-3f1b.arrow")):
        write_batch(stored, batch)
        outbox = stored.child("outbox").child(str(batch))
        outbox.write(name, b"effects")
        outbox.write("manifest", b"%d" % batch)
        take_snapshot(stored, target)
        outbox.remove_all()
    copy = Folder.at(tmp_path / "copy")
    restore_snapshot(target, copy)

    assert copy.child("outbox").sizes() == {"1/0-2-3f1b.arrow": 7, "1/manifest": 1}
    assert target.child("outbox").names() == ["1"]


def test_an_application_that_is_too_fast_is_an_error(
    stored: Folder, target: Folder, monkeypatch: Patch
) -> None:
    """If each attempt to read the files sees a further micro-batch, the error says what to do."""
    read, batches = Folder.read, iter(range(1, 10_000))

    def read_and_commit(folder: Folder, name: str) -> bytes:
        if name == "metadata":
            write_batch(stored, next(batches))
        return read(folder, name)

    monkeypatch.setattr(Folder, "read", read_and_commit)
    monkeypatch.setattr("statefun.inspect.changing_files._ATTEMPTS", 3)

    with pytest.raises(CheckpointError, match=r"faster than .* can be copied from .*: stop it"):
        ChangingFiles(stored, target).capture()


@pytest.mark.parametrize("path", ["offsets/0", "metadata"])
def test_a_checkpoint_that_has_lost_files_is_not_copied(
    stored: Folder, target: Folder, path: str
) -> None:
    """Otherwise the copy would replace an earlier one that can be restored."""
    place, _, name = path.rpartition("/")
    (stored.child(place) if place else stored).remove(name)

    with pytest.raises(CheckpointError, match=f"has lost its file {path}"):
        ChangingFiles(stored, target).capture()


def test_a_file_that_is_created_meanwhile_is_no_folder(
    stored: Folder, target: Folder, monkeypatch: Patch
) -> None:
    """Whenever the application creates its first file of some name, the others are copied."""
    listed, names = LocalFiles.list, (f"{number}.json" for number in range(100))

    def list_and_create(files: LocalFiles, folder: str) -> dict[str, FileFacts | None]:
        found = listed(files, folder)
        if folder == stored.location:
            (Path(folder) / next(names)).write_bytes(b"new")
        return found

    monkeypatch.setattr(LocalFiles, "list", list_and_create)
    captured = ChangingFiles(stored, target).capture()

    assert captured.contents.keys() >= {"metadata", "ingresses.json", "offsets/0", "commits/0"}


def test_half_of_a_commit_is_not_copied(stored: Folder, target: Folder) -> None:
    """A loss of power may leave half of a file that Spark has written."""
    stored.child("commits").write("0", b"v1")

    with pytest.raises(CheckpointError, match="commits/0 does not have the form"):
        ChangingFiles(stored, target).capture()


def test_the_playground_is_copied_as_of_one_moment(
    stored: Folder, target: Folder, tmp_path: Path
) -> None:
    """Its newest rows are in a second file of the database while the application has it open."""
    place = Path(stored.location) / PLAYGROUND_FILE
    with closing(sqlite3.connect(place)) as database:
        database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE rows (row INTEGER);")
        database.execute("INSERT INTO rows VALUES (7)")
        database.commit()
        take_snapshot(stored, target)
    restore_snapshot(target, Folder.at(tmp_path / "copy"))

    with closing(sqlite3.connect(tmp_path / "copy" / PLAYGROUND_FILE)) as database:
        assert database.execute("SELECT row FROM rows").fetchall() == [(7,)]
