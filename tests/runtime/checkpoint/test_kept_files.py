# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from object_store import ObjectStore
from patience import SECONDS
from store_proxy import store_proxy

from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint import kept_files
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.kept_files import KeptFiles, OwnCommits
from statefun.runtime.checkpoint.object_store import ObjectStoreFiles
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.spark_internals.log_files import RUN_OF_COMMIT


def test_permanent_files_are_read_once() -> None:
    """Others are read each time, as other processes may replace them."""
    kept, reads = KeptFiles(), []

    def read(path: str) -> bytes:
        reads.append(path)
        return path.encode()

    for path in ("c/offsets/7", "c/metadata", "c/outbox/7/manifest-ab", "c/paused.json", "c/x/7"):
        assert kept.read(path, read) == kept.read(path, read) == path.encode()

    assert reads == [
        "c/offsets/7",
        "c/metadata",
        "c/outbox/7/manifest-ab",
        *["c/paused.json"] * 2,
        *["c/x/7"] * 2,
    ]


def test_deleted_files_are_missing_until_they_are_written_again() -> None:
    """Nobody else writes a manifest again, but Spark its logs; a folder's files are asked for again."""
    kept, manifest = KeptFiles(), "c/outbox/7/manifest-ab"
    kept.keep(manifest, b"7")
    kept.keep(manifest, None)
    with pytest.raises(FileNotFoundError):
        kept.read(manifest, lambda _: b"of the store")
    assert not kept.has(manifest)
    kept.keep(manifest, b"8")
    assert kept.read(manifest, lambda _: b"of the store") == b"8"

    kept.keep("c/offsets/7", b"7")
    kept.keep("c/offsets/7", None)
    assert kept.read("c/offsets/7", lambda _: b"of Spark") == b"of Spark"

    kept.drop("c/out")
    assert kept.has(manifest)
    kept.drop("c")
    assert kept.read(manifest, lambda _: b"of the store") == b"of the store"


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_file_that_is_deleted_while_it_is_read_is_not_kept(*, is_folder: bool) -> None:
    """What the reader has got is older than the deletion by another thread."""
    kept, path = KeptFiles(), "c/offsets/7"

    def read(_: str) -> bytes:
        if is_folder:
            kept.drop("c")
        else:
            kept.keep(path, None)
        return b"before the deletion"

    assert kept.read(path, read) == b"before the deletion"

    assert not kept.has(path)
    assert kept.read(path, lambda _: b"of Spark") == b"of Spark"
    assert kept.has(path)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_another_thread_reads_is_not_requested_again(*, is_there: bool) -> None:
    """Who waits reads it all the same if the other one has found nothing: it may have been written since."""
    kept, reads, is_read, is_asked = KeptFiles(), [], threading.Event(), threading.Event()

    def slow(path: str) -> bytes:
        is_read.set()
        assert is_asked.wait(SECONDS)
        if not is_there:
            raise FileNotFoundError(path)
        return b"plan"

    def quick(path: str) -> bytes:
        reads.append(path)
        return b"plan"

    def ask() -> bytes:
        threading.Timer(0.05, is_asked.set).start()
        return kept.read("c/offsets/7", quick)

    with ThreadPoolExecutor() as threads:
        first = threads.submit(kept.read, "c/offsets/7", slow)
        assert is_read.wait(SECONDS)
        asked = [threads.submit(ask) for _ in range(2)]

        assert [each.result(SECONDS) for each in asked] == [b"plan"] * 2
        assert len(reads) == 0 if is_there else 1 <= len(reads) <= 2
        assert (first.exception(SECONDS) is None) == is_there


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_file_that_is_read_while_it_is_deleted_is_not_kept(
    store: Folder, monkeypatch: pytest.MonkeyPatch, *, is_folder: bool
) -> None:
    """The folder of an owner says that it is missing, as the store does."""
    checkpoint = store.guarded(lambda: None)
    offsets = checkpoint.child("offsets")
    offsets.write("7", b"plan")
    name = "remove_folder" if is_folder else "remove"
    delete = getattr(ObjectStoreFiles, name)

    def delete_after_read(files: ObjectStoreFiles, path: str) -> None:
        assert offsets.read("7") == b"plan"
        delete(files, path)

    monkeypatch.setattr(ObjectStoreFiles, name, delete_after_read)
    if is_folder:
        offsets.remove_all()
    else:
        offsets.remove("7")

    assert not offsets.has("7")
    with pytest.raises(FileNotFoundError):
        offsets.read("7")


def test_only_so_much_is_kept() -> None:
    """Files that were used longest ago are read again."""
    kept = KeptFiles(most=20)
    for number in range(3):
        kept.keep(f"offsets/{number}", b"7 bytes")
    assert [kept.has(f"offsets/{number}") for number in range(3)] == [False, True, True]


def test_an_owner_needs_few_requests(store: Folder, store_server: ObjectStore) -> None:
    """Its batches are known to be committed; staging, reading and deleting a batch are two requests."""
    with store_proxy(store_server.port) as proxy:
        location = store.location.replace(f":{store_server.port}", f":{proxy.port}")
        checkpoint = Folder.at(location).guarded(lambda: None)
        committed = [-1]
        assert checkpoint.kept is not None
        checkpoint.kept.own_commits = OwnCommits("run", 3, lambda: committed[0])
        outbox, log = Outbox(checkpoint), CommitLog(checkpoint)

        outbox.stage(Manifest(batch=5, run_id="run", segments=[Segment(partition=0)]))
        assert (log.newest(), log.has(5), log.author(5)) == (3, False, None)
        committed[0] = 5
        assert (log.newest(), log.has(5), log.author(5)) == (5, True, "run")
        assert outbox.staged(5) is not None
        outbox.remove(5)
        assert outbox.manifest(5) is None

        assert [each.method for each in proxy.requests] == ["PUT", "POST"]
    assert store.sizes() == {}


def test_a_commit_that_the_store_has_shown_stays_known(
    store: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM learns of it a moment later: meanwhile nobody may take the batch for one without effects."""
    checkpoint = store.guarded(lambda: None)
    assert checkpoint.kept is not None
    checkpoint.kept.own_commits = OwnCommits("run", 3, lambda: -1)
    outbox, log = Outbox(checkpoint), CommitLog(checkpoint)
    outbox.stage(Manifest(batch=4, run_id="run", segments=[Segment(partition=0)]))
    commit = json.dumps({RUN_OF_COMMIT: "run"}).encode()
    store.child("commits").write("4", b"v1\n" + commit)

    monkeypatch.setattr(kept_files, "_ASK", timedelta(0))
    assert log.author(4) == "run"
    monkeypatch.setattr(kept_files, "_ASK", timedelta(days=1))  # the store is not asked again

    assert log.author(4) == "run"
    assert outbox.staged(4) is not None
    assert (log.newest(), log.is_only_own(5)) == (4, False)


def test_a_commit_that_one_thread_learns_of_is_known_to_all() -> None:
    """Another thread may be asking the JVM meanwhile."""

    def latest() -> int:
        own.learn(7)  # as another thread does
        return 5

    own = OwnCommits("run", 3, latest)

    assert own.newest() == 7
    assert own.has(7)


def test_what_an_earlier_run_has_staged_is_deleted_with_the_batch(store: Folder) -> None:
    """The present run has repeated the batch that the earlier one has not committed."""
    earlier = Outbox(store)
    earlier.stage(Manifest(batch=5, run_id="earlier", segments=[Segment(partition=0)]))
    earlier.batch_folder(5).write("large", b"effects")
    checkpoint = store.guarded(lambda: None)
    assert checkpoint.kept is not None
    checkpoint.kept.own_commits = OwnCommits("run", 4, lambda: 5)
    outbox = Outbox(checkpoint)
    outbox.stage(Manifest(batch=5, run_id="run", segments=[Segment(partition=0)]))

    outbox.remove(5)

    assert store.sizes() == {}


def test_a_run_may_end_while_its_commits_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads of the run that ends get an answer of that run."""
    own = OwnCommits("run", 4, lambda: 5)
    answers: list[OwnCommits | None] = []
    known = property(lambda _: answers.pop(0), lambda *_: None)
    monkeypatch.setattr(KeptFiles, "own_commits", known, raising=False)
    log = CommitLog(Folder.at(tmp_path).guarded(lambda: None))

    found = []
    for ask in (log.newest, lambda: log.has(5), lambda: log.is_own(5), lambda: log.author(5)):
        answers[:] = [own, None, None]
        found.append(ask())

    assert found == [5, True, True, "run"]


def test_the_files_of_a_batch_are_deleted_with_it(store: Folder) -> None:
    """Also in the store of an owner, and the mark of a batch that was published before it was delivered."""
    checkpoint = store.guarded(lambda: None)
    assert checkpoint.kept is not None
    checkpoint.kept.own_commits = OwnCommits("run", -1, lambda: 9)
    outbox = Outbox(checkpoint)
    messages, record = effect_stream(b"a", 1, "large"), effect_stream(b"b", 1)
    segment = Segment(partition=0, messages=messages, egress={"test/out": record})
    outbox.stage(Manifest(batch=8, run_id="run", segments=[segment]))
    outbox.batch_folder(8).write("large", b"a")
    segment.messages.CopyFrom(effect_stream(b"a", 1))
    outbox.stage(Manifest(batch=9, run_id="run", segments=[segment]))
    for batch in (8, 9):
        outbox.mark_published(batch)
        outbox.remove(batch)

    assert store.sizes() == {}
