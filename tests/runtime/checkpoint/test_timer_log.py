# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.chaos import Chaos
from simulation.disk import Disk, MemoryFolder

from statefun import CheckpointError
from statefun.engine.wheel import PendingBuckets, due_tick
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets

buckets = st.sets(st.integers(0, 2**43), max_size=30)


@given(st.lists(buckets, max_size=5))
def test_the_buckets_of_a_batch_are_those_of_its_segments(segments: list[set[int]]) -> None:
    """Each task writes the buckets of its own messages into its segment."""
    manifest = Manifest(segments=[Segment(buckets=sorted(some)) for some in segments])

    assert timer_buckets(Manifest.FromString(manifest.SerializeToString())) == set().union(
        *segments
    )


def test_the_log_outlives_its_writer(checkpoint: Path) -> None:
    """A new object loads all buckets that were added, before and after snapshots."""
    folder = Folder.at(checkpoint)
    writer, pending = TimerLog(folder), PendingBuckets()
    assert len(writer.load()) == 0

    for batch in range(250):
        if batch == 120:
            writer = TimerLog(folder)
            pending = writer.load()
        if batch == 180:
            pending.drop(due_tick(800))
        added = {8 * batch, 8 * batch + 1}
        pending.add(added)
        writer.add(batch, added, pending)
        assert set(pending.all()) <= set(TimerLog(folder).load().all())

    # The snapshot after the 180th batch omits dropped buckets.
    assert min(TimerLog(folder).load().all()) > 800
    assert len(folder.child("timers").names()) < 110


def test_a_reader_gets_over_files_that_a_snapshot_replaces(checkpoint: Path) -> None:
    """The reader lists the folder before the snapshot, and reads the files after it."""
    folder = Folder.at(checkpoint)
    writer, pending = TimerLog(folder), PendingBuckets()
    pending.add({7})
    writer.add(0, {7}, pending)

    class Late(Folder):
        """Lets the file go once, between listing and reading."""

        def child(self, name: str) -> Folder:
            return Late(f"{self.location}/{name}")

        def names(self) -> list[str]:
            found = super().names()
            if "0" in found:
                write_framed(folder, "timers/1.all", read_framed(folder, "timers/0"))
                self.remove("0")
            return found

    assert set(TimerLog(Late.at(checkpoint)).load().all()) == {7}


def test_a_damaged_log_is_an_error(checkpoint: Path) -> None:
    """The file is named, and no timer goes missing silently."""
    folder = Folder.at(checkpoint)
    folder.child("timers").write("3", b"\xff")

    with pytest.raises(CheckpointError, match=r"timers/3 is damaged"):
        TimerLog(folder).load()


def test_a_recovered_log_is_on_the_disk() -> None:
    """The process that wrote it may have ended before it was on the disk."""
    for seed in range(10):
        chaos, disk = Chaos(seed), Disk()
        chaos.active = False
        log, pending = TimerLog(MemoryFolder("/c", disk, chaos)), PendingBuckets()
        pending.add({7 << 20})
        log.add(2, {7 << 20}, pending)
        disk.name("/c/timers/2", disk.files.pop("/c/timers/2"))
        log.recover()
        disk.lose_power(chaos.random, 0)
        assert len(log.load()) == 1
