# SPDX-License-Identifier: Apache-2.0
"""The log of calls that have left their micro-batches."""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.chaos import Chaos
from simulation.disk import Disk, MemoryFolder

from statefun.runtime.checkpoint import call_log
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.folder import Folder


def names(batch: int, count: int) -> dict[str, bytes]:
    """Return calls that leave a micro-batch: their names, and the keys of their addresses."""
    return {f"{batch}-{number}": b"%d\0t/f" % number for number in range(count)}


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), max_size=30),
    st.integers(2, 6),
    st.integers(0, 6),
    st.randoms(use_true_random=False),
)
def test_the_log_has_all_calls_under_way_and_few_others(
    batches: list[tuple[int, int]], length: int, most_ended: int, random: Random
) -> None:
    """So it is after each micro-batch, for a new run, too, and the folder stays small."""
    chaos = Chaos(0)
    chaos.active = False
    folder = MemoryFolder("/c", Disk(), chaos)
    log, under_way = CallLog(folder), dict[str, bytes]()
    with (
        patch.object(call_log, "_LOG_LENGTH", length),
        patch.object(call_log, "_MOST_ENDED", most_ended),
    ):
        for batch, (leaving, ending) in enumerate(batches):
            for name in random.sample(sorted(under_way), min(ending, len(under_way))):
                del under_way[name]
            if random.random() < 0.2:
                log = CallLog(folder)
                assert log.recover().items() >= under_way.items()
            calls = names(batch, leaving)
            under_way |= calls
            log.add(batch, calls, under_way)

            found = CallLog(folder).recover()
            assert found.items() >= under_way.items()
            assert len(found) <= 2 * len(under_way) + most_ended
            assert len(folder.child("calls").names()) <= length


def test_a_log_without_calls_under_way_is_deleted(checkpoint: Path) -> None:
    """A run that ends with all of its calls leaves nothing to the next one."""
    folder = Folder.at(checkpoint)
    log = CallLog(folder)
    log.add(0, names(0, 2), names(0, 2))
    before = CallLog(folder).recover()
    log.clear()

    assert before == names(0, 2)
    assert not CallLog(folder).recover()
    assert not folder.child("calls").names()


def test_a_recovered_log_is_on_the_disk() -> None:
    """The process that wrote it may have ended before it was on the disk."""
    for seed in range(10):
        chaos, disk = Chaos(seed), Disk()
        chaos.active = False
        log = CallLog(MemoryFolder("/c", disk, chaos))
        log.add(2, names(2, 1), names(2, 1))
        disk.name("/c/calls/2", disk.files.pop("/c/calls/2"))
        log.recover()
        disk.lose_power(chaos.random, 0)
        assert log.recover() == names(2, 1)


@pytest.mark.parametrize("end", ["snapshot", "clear"])
def test_a_call_leaves_the_log_when_the_commit_that_ends_it_is_on_the_disk(end: str) -> None:
    """If a loss of power took the commit back, the call would be under way again, and in no log."""
    for seed in range(10):
        chaos, disk = Chaos(seed), Disk()
        chaos.active = False
        log = CallLog(MemoryFolder("/c", disk, chaos))
        log.add(0, names(0, 2), names(0, 2))
        for path in ("metadata", "offsets/1", "commits/1"):  # Spark does not sync them
            disk.create(f"/c/{path}", b"content")
        if end == "clear":
            log.clear()
        else:
            with patch.object(call_log, "_LOG_LENGTH", 2):
                log.add(2, names(2, 1), names(2, 1))
        disk.lose_power(chaos.random, 0)

        assert disk.files.get("/c/commits/1") == b"content"
        assert not disk.is_damaged
