# SPDX-License-Identifier: Apache-2.0
"""The files of the trace journal: few of them, and each micro-batch in one."""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from object_store import ObjectStore
from store_proxy import store_proxy
from two_step import Crash, Mounted

from statefun.protocol.runtime_pb2 import TraceEntries
from statefun.runtime.checkpoint import trace_log
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.trace_log import FULL, TraceLog, read_traces
from statefun.sdk.errors import CheckpointError

AMPLE = 10**9
"""A limit that no test reaches."""


def entries(content: bytes) -> TraceEntries:
    """Return the entries of a micro-batch with one task; none if its content is empty."""
    return TraceEntries(tasks=[content] if content else [])


def content(batch: int) -> bytes:
    """Return the content of a micro-batch that cannot be compressed."""
    return random.Random(batch).randbytes(1000)


def commit(folder: Folder, batch: int) -> None:
    """Commit a micro-batch."""
    folder.child("commits").write(f"{batch}", b"v1\n{}")


def found(folder: Folder, since: int | None = None) -> list[tuple[int, bytes]]:
    """Return the committed micro-batches with their contents, as a reader finds them."""
    files = [
        [(each.batch, b"".join(each.tasks)) for each in file] for file in read_traces(folder, since)
    ]
    return [each for file in files for each in (file if since is not None else reversed(file))]


def size(folder: Folder) -> int:
    """Return the size of all files."""
    return sum(folder.child("traces").sizes().values())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a checkpoint in which many micro-batches are committed."""
    folder = Folder.at(tmp_path)
    commit(folder, 100_000)
    return folder


def test_a_quiet_application_has_few_files(folder: Folder) -> None:
    """Each micro-batch writes one file, and rereads nothing."""
    log = TraceLog(folder, AMPLE)
    for batch in range(300):
        log.add(batch, entries(content(batch)))

    assert found(folder, since=0) == [(batch, content(batch)) for batch in range(300)]
    assert found(folder) == found(folder, since=0)[::-1]
    assert found(folder, since=123) == found(folder, since=0)[123:]
    sizes = folder.child("traces").sizes()
    assert len(sizes) <= 300 * 1020 // FULL + 1
    assert max(sizes.values()) < 2 * FULL


def test_what_is_the_same_in_each_micro_batch_takes_no_space(folder: Folder) -> None:
    """As the headers of the streams of quiet micro-batches, also of those that a new run has found."""
    header = content(0)
    for batch in range(100):
        if batch in {0, 50}:
            log = TraceLog(folder, AMPLE)
        log.add(batch, entries(header + b"%d" % batch))

    assert found(folder, since=0) == [(batch, header + b"%d" % batch) for batch in range(100)]
    assert size(folder) < 100 * 100


@pytest.mark.parametrize("most", [10_000, 300_000])
def test_so_much_is_kept_as_the_limit_says(folder: Folder, most: int) -> None:
    """The oldest files go first, and most of the limit is in use."""
    log = TraceLog(folder, most)
    for batch in range(3 * most // 1000):
        log.add(batch, entries(content(batch)))
        assert size(folder) <= most
    kept = found(folder)
    newest = 3 * most // 1000 - 1

    assert size(folder) > 0.8 * most
    assert [batch for batch, _ in kept] == [*range(newest, newest - len(kept), -1)]

    TraceLog(folder, most // 2).add(newest + 1, entries(b""))  # a new run, with a lower limit
    assert 0 < size(folder) <= most // 2
    log = TraceLog(folder, 0)
    log.add(newest + 2, entries(b"x"))  # the setting is gone
    assert folder.child("traces").names() == []


def test_a_micro_batch_that_is_larger_than_the_limit_is_not_kept(folder: Folder) -> None:
    """Nor are older ones, which have to make room; the next one is."""
    log = TraceLog(folder, 1000)
    log.add(1, entries(b"one"))
    log.add(2, entries(content(2) * 100))
    log.add(3, entries(b"three"))

    assert found(folder) == [(3, b"three")]


def test_what_is_not_committed_is_not_read(folder: Folder) -> None:
    """It may be computed again, with other invocations, and by another run."""
    folder.child("commits").remove("100000")
    commit(folder, 3)
    log = TraceLog(folder, AMPLE)
    for batch in (2, 3, 4):
        log.add(batch, entries(b"%d" % batch))

    assert found(folder) == [(3, b"3"), (2, b"2")]
    assert found(folder, since=3) == [(3, b"3")]

    TraceLog(folder, AMPLE).add(4, entries(b""))
    commit(folder, 4)
    assert found(folder) == [(3, b"3"), (2, b"2")]


def test_a_damaged_file_is_an_error_that_says_what_to_do(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not taken for a journal without entries; the application goes on, in another file."""
    TraceLog(folder, AMPLE).add(3, entries(b"x"))
    folder.child("traces").write("3", b"half of")
    for name in (".5.tmp", "007", "\u0663", "notes"):
        folder.child("traces").write(name, b"not of the journal")

    with pytest.raises(CheckpointError, match=r"traces/3 is damaged .*delete it"):
        [*read_traces(folder)]
    with caplog.at_level(logging.WARNING):
        TraceLog(folder, AMPLE).add(4, entries(b"y"))
    assert "traces/3 is damaged" in caplog.text
    folder.child("traces").remove("3")
    assert found(folder) == [(4, b"y")]


def test_a_reader_finds_the_rest_when_files_are_deleted_meanwhile(folder: Folder) -> None:
    """It has listed them before, and the application goes on."""
    log = TraceLog(folder, 10 * FULL)
    for batch in range(8):
        log.add(batch, entries(b"x" * FULL))
    reading = read_traces(folder, 0)
    first = [each.batch for each in next(reading)]
    for batch in range(8, 14):
        log.add(batch, entries(b"x" * FULL))

    assert first == [0]
    assert [each.batch for file in reading for each in file] == [5, 6, 7]


def test_a_micro_batch_makes_one_request_to_a_store(store_server: ObjectStore) -> None:
    """Many files are deleted with one request."""
    with store_proxy(store_server.port) as proxy:
        folder = Folder.at(store_server.location("few-requests", port=proxy.port))
        log = TraceLog(folder, 20 * FULL)
        for batch in range(15):
            log.add(batch, entries(b"x" * FULL))
        log.add(15, entries(b""))
        assert Counter(each.method for each in [*proxy.requests]) == {"GET": 1, "PUT": 15}
        proxy.requests.clear()

        log.add(16, entries(b"x" * 19 * FULL))

        assert Counter(each.method for each in [*proxy.requests]) == {"PUT": 1, "POST": 1}
        assert folder.child("traces").names() == ["16"]


steps = st.lists(
    st.tuples(
        st.binary(max_size=30),
        st.one_of(st.none(), st.integers(min_value=0, max_value=9)),
        st.booleans(),
    ),
    max_size=30,
)
"""For each micro-batch: its entries, after how many changes of files the run crashes, and whether it is committed before."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps, st.sampled_from([0, 60, 100]))
def test_the_journal_is_that_of_the_committed_micro_batches_after_any_crash(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[bytes, int | None, bool]],
    full: int,
) -> None:
    """A micro-batch is computed again with other invocations, or with none, if it was not committed."""
    monkeypatch.setattr(trace_log, "FULL", full)
    mounted = Mounted(tmp_path_factory.mktemp("traces"), monkeypatch)
    model: list[tuple[int, bytes]] = []
    batch = 0
    log = TraceLog(mounted.crashing(None), AMPLE)
    for content, crash, is_committed in steps:
        try:
            if crash is not None:
                log = TraceLog(mounted.crashing(crash), AMPLE)
            log.add(batch, entries(content))
        except Crash:
            is_committed = False  # noqa: PLW2901 - for this step
        if is_committed:
            commit(mounted.crashing(None), batch)
            model += [(batch, content)] if content else []
            batch += 1
        if crash is not None:
            log = TraceLog(mounted.crashing(None), AMPLE)
        assert found(mounted.crashing(None)) == model[::-1]
        assert found(mounted.crashing(None), batch // 2) == [
            each for each in model if each[0] >= batch // 2
        ]
