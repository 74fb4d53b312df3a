# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from local_servers import free_port
from object_store import ObjectStore

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.object_store import ObjectStoreFiles
from statefun.runtime.checkpoint.store_errors import StoreError


def test_files_are_objects(store: Folder) -> None:
    """Written, replaced, listed, moved and deleted as in any folder; a folder is there if it has files."""
    store.write("a", b"old")
    store.write("a", b"new")
    store.child("x").write("b", b"1" * 9_000_000)
    assert (store.names(), store.sizes()) == (["a", "x"], {"a": 3, "x/b": 9_000_000})
    assert (store.read("a"), [*store.files()], store.has("b")) == (b"new", ["a"], False)
    assert (store.exists(), store.child("y").exists()) == (True, False)
    with store.child("x").open("b") as file:
        assert [len(file.read(10)), len(file.read()), file.read(3)] == [10, 8_999_990, b""]

    store.move("a", "x/c")
    store.remove("a")

    assert store.sizes() == {"x/b": 9_000_000, "x/c": 3}
    with pytest.raises(FileNotFoundError):
        store.read("a")
    store.child("x").remove_several([])
    store.child("x").remove_several(["b", "missing", "a b/%"])
    assert store.sizes() == {"x/c": 3}
    store.remove_all()
    assert store.sizes() == {}


def test_one_of_many_creates_a_file(store: Folder) -> None:
    """The content is that of the one that was told so, and stays."""
    with ThreadPoolExecutor(8) as threads:
        won = [*threads.map(lambda each: store.create("a", b"%d" % each), range(8))]

    assert won.count(True) == 1
    assert store.read("a") == b"%d" % won.index(True)


def test_a_lost_answer_is_no_failure(store: Folder) -> None:
    """A second request for the same content finds it there."""
    assert store.create("a", b"nonce")
    assert store.create("a", b"nonce")
    assert not store.create("a", b"another")


@pytest.mark.usefixtures("store_server")
def test_a_conflict_means_again(store: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may refuse a request because of another one at the same time, which then fails."""
    read, missing = ObjectStoreFiles.read, [1, 2]
    assert store.create("a", b"another")

    def read_later(self: ObjectStoreFiles, path: str) -> bytes:
        if missing:
            missing.pop()
            if not missing:
                self.remove(path)
            raise FileNotFoundError(path)
        return read(self, path)

    monkeypatch.setattr(ObjectStoreFiles, "read", read_later)

    assert store.create("a", b"nonce")


def test_failures_are_one_sentence(
    store_server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing bucket, and a store that does not answer; no error has the credentials."""
    location = store_server.location("a")
    missing = Folder.at(location.replace("s3a://tests/", "s3a://nowhere/"))
    monkeypatch.setattr("statefun.runtime.checkpoint.object_store._ATTEMPTS", 1)
    silent = Folder.at(store_server.location("a", port=free_port()))

    with pytest.raises(StoreError, match="the bucket of s3://nowhere does not exist"):
        missing.write("a", b"")
    with pytest.raises(StoreError, match="the object store of s3://tests has failed") as failed:
        silent.write("a", b"")
    assert "\n" not in str(failed.value)
    assert "secret" not in str(failed.value)
