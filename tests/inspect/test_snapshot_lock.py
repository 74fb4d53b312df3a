# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from pathlib import Path

import pytest
from object_store import ObjectStore
from small_checkpoint import small_checkpoint, write_batch
from store_proxy import Fault, store_proxy

from statefun.inspect.snapshot_lock import only_snapshot
from statefun.inspect.snapshots import restore_snapshot, take_snapshot
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.sdk.errors import CheckpointError, ConfigurationError


def test_a_second_snapshot_into_the_same_folder_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a timer whose last command has not ended yet; the first one is complete."""
    stored, target, write = (
        small_checkpoint(checkpoint),
        Folder.at(tmp_path / "target"),
        Folder.write,
    )
    first_goes_on, second_goes_on = threading.Event(), threading.Event()

    def scheduled(folder: Folder, name: str, content: bytes) -> None:
        write(folder, name, content)
        if name == "1_3f1b.changelog":
            second_goes_on.set()
            first_goes_on.wait(30)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", scheduled)
        first = threading.Thread(target=take_snapshot, args=(stored, target))
        first.start()
        assert second_goes_on.wait(30)
        write_batch(stored, 1)
        with pytest.raises(CheckpointError, match=r"another snapshot is being made in .*target"):
            take_snapshot(stored, target)
        first_goes_on.set()
        first.join(30)

    assert restore_snapshot(target, Folder.at(tmp_path / "copy")).batch == 0
    assert take_snapshot(stored, target).batch == 1


def test_a_lease_keeps_others_from_the_folder_in_a_store(store: Folder) -> None:
    """There, files have no locks; the next snapshot begins as soon as the last one has ended."""
    for _ in range(2):
        with (
            only_snapshot(store),
            pytest.raises(CheckpointError, match=r"no snapshot can be made in .* process \d+ on"),
            only_snapshot(store),
        ):
            pass


def test_a_store_that_ignores_conditions_has_snapshots_without_a_lease(
    checkpoint: Path, store: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint could not be there, but a snapshot has no more than one writer, if its user takes care of that."""

    def create(self: Folder, name: str, content: bytes) -> bool:
        self.write(name, content)
        return True

    monkeypatch.setattr(Folder, "create", create)
    stored = small_checkpoint(checkpoint)
    for batch in range(2):
        write_batch(stored, batch)
        assert take_snapshot(stored, store).batch == batch

    assert "lease" not in store.names()
    assert restore_snapshot(store, Folder.at(tmp_path / "copy")).batch == 1


def test_a_store_without_conditions_has_snapshots_but_no_checkpoint(
    checkpoint: Path, store: Folder, store_server: ObjectStore
) -> None:
    """It answers with an error to each request that has a condition."""
    stored = small_checkpoint(checkpoint)
    with store_proxy(store_server.port) as proxy:
        old = Fault(501, "NotImplemented")
        proxy.fault = lambda request: old if request.is_conditional else None
        location = store.location.replace(f":{store_server.port}", f":{proxy.port}")

        assert take_snapshot(stored, Folder.at(location)).batch == 0
        with (
            pytest.raises(
                ConfigurationError, match="answers with an error if it is asked to create"
            ),
            checkpoint_lock(Folder.at(f"{location}/checkpoint")),
        ):
            pass

    assert restore_snapshot(store, Folder.at(checkpoint.parent / "copy")).batch == 0


def test_a_snapshot_in_a_store_is_replaced(checkpoint: Path, store: Folder, tmp_path: Path) -> None:
    """It is as one on a local disk; the lease is not part of the restored checkpoint."""
    stored = small_checkpoint(checkpoint)
    take_snapshot(stored, store)
    write_batch(stored, 1)
    stored.child("state").child("0").child("0").remove("1_3f1b.changelog")

    assert take_snapshot(stored, store).batch == 1
    restore_snapshot(store, Folder.at(tmp_path / "copy"))

    assert set(Folder.at(tmp_path / "copy").sizes()) == set(stored.sizes())
    assert store.child("state").sizes() == {"0/0/2_3f1b.changelog": 7}
