# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from statefun import ConfigurationError
from statefun.runtime.checkpoint import playground_store
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE, PlaygroundStore, Taken
from statefun.sdk.errors import CheckpointError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PlaygroundStore]:
    """Return an empty store."""
    with closing(PlaygroundStore(Folder.at(tmp_path))) as made:
        yield made


def test_messages_are_numbered_over_restarts(tmp_path: Path) -> None:
    """A number that an offset has is never used again, even if the database is lost."""
    with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
        store.post(b"a", "a/T", b"1")
        store.post(b"b", "a/T", b"")
    with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
        store.post(b"a", "a/T", b"3")
        assert store.readable(0) == 3
        assert store.posted(1, 3) == [
            AcceptedMessage(2, b"b", "a/T", b""),
            AcceptedMessage(3, b"a", "a/T", b"3"),
        ]
        store.forget(3)
        assert store.posted(0, 3) == []
    with closing(PlaygroundStore(Folder.at(tmp_path), read=3)) as store:
        assert store.readable(3) == 3
        store.post(b"a", "a/T", b"4")
        assert [each.number for each in store.posted(3, store.readable(3))] == [4]


def test_a_message_that_cannot_be_stored_leaves_no_gap(
    store: PlaygroundStore,
) -> None:
    """All numbers up to the one in Spark's offset belong to accepted messages."""
    store.post(b"a", "a/T", b"1")
    store._database.execute("PRAGMA max_page_count = 8")  # noqa: SLF001 - as a full disk
    with pytest.raises(CheckpointError, match="full"):
        store.post(b"a", "a/T", bytes(1_000_000))
    store._database.execute("PRAGMA max_page_count = 1000000")  # noqa: SLF001 - and one with room
    store.post(b"a", "a/T", b"2")
    assert store.readable(0) == 2
    assert [each.number for each in store.posted(0, 2)] == [1, 2]


def test_a_micro_batch_reads_a_limited_number_of_bytes(store: PlaygroundStore) -> None:
    """A large message comes alone, and all messages come."""
    for _ in range(5):
        store.post(b"a", "a/T", bytes(5_000_000))
    ends = [0]
    while store.readable(ends[-1]) > ends[-1]:
        ends.append(store.readable(ends[-1]))
    assert ends == [0, 1, 2, 3, 4, 5]


def test_too_many_messages_are_refused_until_some_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Number and bytes are limited, also over restarts; a single message may have any size."""
    monkeypatch.setattr(playground_store, "MOST_RECORDS", 3)
    monkeypatch.setattr(playground_store, "MOST_ACCEPTED_BYTES", 100)

    def posts(store: PlaygroundStore, *sizes: int) -> list[bool]:
        return [store.post(b"a", "a/T", bytes(size)) for size in sizes]

    with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
        assert posts(store, 60, 41, 40, 0, 0) == [True, False, True, True, False]
    with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
        assert posts(store, 0) == [False]
        assert store.readable(0) == 3, "a refused message takes no number"
        store.forget(1)
        assert posts(store, 61, 60, 0) == [False, True, False]
        store.forget(4)
        assert posts(store, 500, 0) == [True, False]


def test_records_are_taken_in_order_and_once(store: PlaygroundStore) -> None:
    """A record that has not arrived at a client is the next one again."""
    store.publish("a/out", None, "{}", [("t", b"1"), ("u", b"other"), ("t", b"2")])
    first = store.take("t", 0)
    second = store.take("t", 0)
    assert first is not None
    assert second is not None
    assert (first.payload, second.payload) == (b"1", b"2")
    assert store.take("t", 0) is None
    store.put_back(first)
    store.taken(second)
    again = store.take("t", 0)
    assert again is not None
    assert again.payload == b"1"
    store.taken(again)


def test_records_come_with_the_progress_of_their_lane(store: PlaygroundStore) -> None:
    """If a record cannot be added, the marker does not change either."""
    store.publish("a/out/0", None, "one", [("t", b"1")])

    def failing() -> Iterator[tuple[str, bytes]]:
        yield "t", b"2"
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it has no text
        store.publish("a/out/0", "one", "two", failing())
    assert store.marker("a/out/0") == "one"
    assert store.marker("a/out/1") is None
    store.publish("a/out/0", "one", "two", [])
    assert store.marker("a/out/0") == "two"
    record = store.take("t", 0)
    assert record is not None
    store.taken(record)
    assert store.take("t", 0) is None


def test_the_newest_records_that_no_client_takes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Number and bytes of a topic's records are limited, also over restarts; one warning is logged."""
    monkeypatch.setattr(playground_store, "MOST_RECORDS", 3)
    monkeypatch.setattr(playground_store, "MOST_ACCEPTED_BYTES", 100)

    def taken(store: PlaygroundStore, topic: str) -> list[bytes]:
        found = []
        while record := store.take(topic, 0):
            store.taken(record)
            found.append(record.payload)
        return found

    with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
        marker = None
        for number in range(5):
            new = [("t", b"%d" % number), ("u", b"u")] if number < 2 else [("t", b"%d" % number)]
            assert store.publish("a/out", marker, str(number), new)
            marker = str(number)
        assert len([each for each in caplog.messages if "topic t" in each]) == 1
        held = store.take("t", 0)
        assert held is not None
        assert held.payload == b"2"
        store.publish("a/out", marker, "more", [("t", b"5")])
        store.taken(held)  # it was dropped while it was sent
    with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
        assert taken(store, "t") == [b"3", b"4", b"5"]
        store.publish("a/out", "more", "large", [("t", bytes(60)), ("t", bytes(50)), ("t", b"x")])
        assert taken(store, "t") == [bytes(50), b"x"]
        store.publish("a/out", "large", "larger", [("t", b"y"), ("t", bytes(500))])
        assert taken(store, "t") == [bytes(500)]
        assert taken(store, "u") == [b"u", b"u"]


def test_a_writer_with_an_old_marker_adds_nothing(store: PlaygroundStore) -> None:
    """Another connection has published in the lane meanwhile."""
    assert store.publish("a/out/0", None, "one", [("t", b"1")])
    assert not store.publish("a/out/0", None, "two", [("t", b"2")])

    assert store.marker("a/out/0") == "one"
    record = store.take("t", 0)
    assert record is not None
    store.taken(record)
    assert store.take("t", 0) is None


def test_a_record_ends_a_wait(store: PlaygroundStore) -> None:
    """The end of the store ends it as well."""
    found: list[Taken | None] = []
    waiting = [threading.Thread(target=lambda: found.append(store.take("t", 60))) for _ in range(2)]
    for thread in waiting:
        thread.start()
    store.publish("a/out", None, "{}", [("t", b"1")])
    while not found:
        threading.Event().wait(0.01)
    assert found[0] is not None
    store.taken(found[0])
    store.close()
    for thread in waiting:
        thread.join()
    assert [record is None for record in found] == [False, True]


def test_a_client_that_never_reads_does_not_keep_the_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is returned again by the next run."""
    monkeypatch.setattr(playground_store, "_ANSWER_SECONDS", 0.01)
    for _ in range(2):
        with closing(PlaygroundStore(Folder.at(tmp_path))) as store:
            store.publish("a/out/0", None, "{}", [("a", b"x")])
            record = store.take("a", 0)
            assert record is not None
            assert (record.number, record.payload) == (1, b"x")


def test_a_client_that_is_gone_takes_no_record(store: PlaygroundStore) -> None:
    """Its wait ends, and the record is the next client's."""

    def check() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.take("a", 600, check)
    store.publish("lane", None, "1", [("a", b"1")])
    with pytest.raises(ConnectionResetError):
        store.take("a", 600, check)
    record = store.take("a", 0)
    assert record is not None
    assert record.payload == b"1"
    store.put_back(record)


def test_the_store_needs_a_local_checkpoint() -> None:
    """SQLite needs a local disk."""
    with pytest.raises(ConfigurationError, match="needs a checkpoint on a local disk"):
        PlaygroundStore(Folder("s3://bucket/checkpoint"))


def test_a_damaged_database_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / PLAYGROUND_FILE).write_bytes(
        b"this is no database, and long enough to look like one" * 99
    )
    with pytest.raises(CheckpointError, match=r"playground\.sqlite cannot be used"):
        PlaygroundStore(Folder.at(tmp_path))
