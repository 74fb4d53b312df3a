# SPDX-License-Identifier: Apache-2.0
"""Snapshots and restores that end half way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOSPC
from pathlib import Path

import pytest
from small_checkpoint import small_checkpoint, write_batch

from statefun.inspect.snapshot_files import SNAPSHOT, SnapshotFacts
from statefun.inspect.snapshots import restore_snapshot, take_snapshot
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.former_queries import (
    FORMER_QUERIES,
    add_former_query,
    former_queries,
)
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.sdk.errors import CheckpointError, ConfigurationError


@pytest.fixture
def stored(checkpoint: Path) -> Folder:
    """Return a checkpoint with a committed micro-batch and its states."""
    return small_checkpoint(checkpoint)


def full_disk(folder: Folder, name: str, content: bytes) -> None:
    """Write a file to a disk without space."""
    raise OSError(ENOSPC, f"No space left on device: {name}, {len(content)} bytes", folder.shown)


@contextmanager
def disk_full_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the disk be full during the block, after so many files were written."""
    write, done = Folder.write, list[str]()

    def fail(folder: Folder, name: str, content: bytes) -> None:
        if len(done) == writes:
            full_disk(folder, name, content)
        write(folder, name, content)
        done.append(name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", fail)
        yield


@pytest.mark.parametrize("writes", range(4))
def test_a_snapshot_that_fails_leaves_the_earlier_one(
    stored: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """At whichever file a later snapshot ends, the earlier or the later one can be restored."""
    target = Folder.at(tmp_path / "target")
    stored.write("waiting.json", b"after batch 0")
    take_snapshot(stored, target)
    write_batch(stored, 1, 20)
    stored.write("waiting.json", b"after batch 1")

    with disk_full_after(writes, monkeypatch), suppress(OSError):
        take_snapshot(stored, target)

    batch = int(writes == 3)  # a state, the archive, and the file that decides
    assert SnapshotFacts.read(target).batch == batch
    copy = Folder.at(tmp_path / "copy")
    restore_snapshot(target, copy)
    assert CommitLog(copy).newest() == batch
    assert copy.read("waiting.json") == b"after batch %d" % batch
    assert take_snapshot(stored, target).batch == 1


@pytest.mark.parametrize("writes", range(3))
def test_a_first_snapshot_can_be_repeated_after_a_crash(
    stored: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """What the killed command has copied does not make the target one of another checkpoint."""
    stored.child("outbox").child("0").write("manifest", b"effects")
    target = Folder.at(tmp_path / "target")

    with disk_full_after(writes, monkeypatch), pytest.raises(OSError, match="No space left"):
        take_snapshot(stored, target)
    with pytest.raises((CheckpointError, ConfigurationError), match=r"no (complete )?snapshot"):
        restore_snapshot(target, Folder.at(tmp_path / "copy"))

    assert take_snapshot(stored, target).batch == 0


def test_half_of_a_copy_is_refused(
    stored: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is complete when its file is there; half of a restored checkpoint has no ingresses."""
    target, write = Folder.at(tmp_path / "target"), Folder.write
    take_snapshot(stored, target)
    facts = target.read(SNAPSHOT)
    target.remove(SNAPSHOT)
    with pytest.raises(CheckpointError, match="has no complete snapshot"):
        restore_snapshot(target, Folder.at(tmp_path / "copy"))

    with pytest.raises(ConfigurationError, match="there is no snapshot at"):
        restore_snapshot(Folder.at(tmp_path / "other"), Folder.at(tmp_path / "copy"))

    def fail(folder: Folder, name: str, content: bytes) -> None:
        if name == "ingresses.json":
            full_disk(folder, name, content)
        write(folder, name, content)

    target.write(SNAPSHOT, facts)
    monkeypatch.setattr(Folder, "write", fail)
    with pytest.raises(OSError, match="No space left"):
        restore_snapshot(target, Folder.at(tmp_path / "copy"))
    with pytest.raises(CheckpointError, match="was not made by statefun, or its file"):
        IngressOrder.read(Folder.at(tmp_path / "copy"))


def test_a_snapshot_of_a_restored_checkpoint_can_be_repeated_after_a_crash(
    stored: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file of former queries does not make an empty target one of another checkpoint."""
    add_former_query(stored, "former")
    target = Folder.at(tmp_path / "target")
    write = Folder.write

    def fail(folder: Folder, name: str, content: bytes) -> None:
        if name != FORMER_QUERIES:
            raise OSError(ENOSPC, f"No space left on device: {name}")
        write(folder, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", fail)
        with pytest.raises(OSError, match="No space left"):
            take_snapshot(stored, target)

    take_snapshot(stored, target)
    assert former_queries(target) == ["former"]


@pytest.mark.parametrize("failing", ["5_3f1b.changelog", "archive", SNAPSHOT])
def test_a_snapshot_that_fails_leaves_the_one_of_an_earlier_version(
    stored: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """What the later snapshot has added to its folder is of later micro-batches, and is not restored."""
    target, write, failed = Folder.at(tmp_path / "target"), Folder.write, list[str]()
    outbox = stored.child("outbox")
    outbox.child("0").write("manifest", b"effects")
    outbox.child("0").write("0-1-3f1b.arrow", b"effects")
    expected = set(stored.sizes())
    shutil.copytree(stored.location, target.location)
    content = {"batch": 0, "query": "query", "created": "2026-11-25T04:47:10+00:00"}
    write_framed(target, SNAPSHOT, json.dumps(content).encode())
    for batch in range(1, 5):
        write_batch(stored, batch)
    outbox.child("0").remove_all()
    outbox.child("4").write("manifest", b"effects")
    outbox.child("4").write("0-5-3f1b.arrow", b"effects")

    def fail(folder: Folder, name: str, content: bytes) -> None:
        if name == failing or (failing == "archive" and name.endswith(".zip")):
            failed.append(name)
            full_disk(folder, name, content)
        write(folder, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", fail)
        with pytest.raises(OSError, match="No space left"):
            take_snapshot(stored, target)
    assert failed
    assert target.child("outbox").child("4").names() == ["0-5-3f1b.arrow"]

    copy = Folder.at(tmp_path / "copy")
    assert restore_snapshot(target, copy).batch == 0
    assert set(copy.sizes()) == expected
    assert take_snapshot(stored, target).batch == 4
