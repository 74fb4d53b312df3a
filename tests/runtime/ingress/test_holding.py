# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from simulation.chaos import Chaos
from simulation.disk import Disk, MemoryFolder

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.holding import (
    MOST_WAITING_BYTES,
    WAITING,
    WaitingGauge,
    take_back_waiting,
)
from statefun.sdk.errors import CheckpointError


def _adding(size: int) -> list[Outcome]:
    return [Outcome(waiting_bytes={"t/slow": size, "t/other": 0})]


def test_reading_slows_down_while_too_much_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The total counts over restarts; a log line says so, and batches that take messages away are not delayed."""
    folder, pauses = Folder.at(tmp_path / "checkpoint"), list[float]()
    WaitingGauge(folder, pauses.append).add(0, _adding(MOST_WAITING_BYTES // 2) * 2)
    assert pauses == []
    backlog = WaitingGauge(folder, pauses.append)
    backlog.add(1, _adding(2))
    backlog.add(2, _adding(0))
    backlog.add(3, _adding(-1))
    assert pauses == [10]
    backlog.add(4, _adding(-MOST_WAITING_BYTES // 2))
    backlog.add(5, _adding(1))
    assert pauses == [10]
    assert [line.partition(" bytes of messages wait")[0] for line in caplog.messages] == [
        f"{MOST_WAITING_BYTES + 2:,}",
        f"{MOST_WAITING_BYTES // 2 + 1:,}",
    ]
    assert "the newest messages are for t/slow;" in caplog.text


def test_a_batch_that_is_repeated_counts_once(tmp_path: Path) -> None:
    """After a crash before its commit, the repeated batch replaces the count of the first attempt."""
    folder, pauses = Folder.at(tmp_path / "checkpoint"), list[float]()
    for size in (MOST_WAITING_BYTES, 0, MOST_WAITING_BYTES - 1):
        WaitingGauge(folder, pauses.append).add(7, _adding(size))
    WaitingGauge(folder, pauses.append).add(8, _adding(1))
    assert pauses == []
    WaitingGauge(folder, pauses.append).add(9, _adding(1))
    assert pauses == [10]


def test_a_batch_that_is_dropped_does_not_count(tmp_path: Path) -> None:
    """The next batch may have its number; a count of a committed batch stays."""
    folder, pauses = Folder.at(tmp_path / "checkpoint"), list[float]()
    WaitingGauge(folder, pauses.append).add(7, _adding(MOST_WAITING_BYTES - 1))
    WaitingGauge(folder, pauses.append).add(8, _adding(MOST_WAITING_BYTES))
    take_back_waiting(folder, 7)
    take_back_waiting(folder, 7)
    WaitingGauge(folder, pauses.append).add(9, _adding(1))
    take_back_waiting(folder, 9)
    assert len(pauses) == 1
    WaitingGauge(folder, pauses.append).add(10, _adding(1))
    assert len(pauses) == 2


def test_a_damaged_count_is_refused(tmp_path: Path) -> None:
    """A damaged file is an error, as any other file of a checkpoint."""
    folder = Folder.at(tmp_path / "checkpoint")
    WaitingGauge(folder).add(1, _adding(5))
    path = tmp_path / "checkpoint" / WAITING
    path.write_bytes(path.read_bytes().replace(b"5", b"6"))
    with pytest.raises(CheckpointError, match=r"waiting\.json"):
        WaitingGauge(folder)


def test_a_count_that_was_read_is_on_the_disk() -> None:
    """The process that wrote the file may have ended before it was on the disk."""
    for seed in range(10):
        chaos, disk = Chaos(seed), Disk()
        chaos.active = False
        folder, path = MemoryFolder("/c", disk, chaos), f"/c/{WAITING}"
        WaitingGauge(folder).add(3, _adding(7))
        disk.name(path, disk.files.pop(path))
        WaitingGauge(folder).add(3, _adding(7))  # writes nothing new
        disk.lose_power(chaos.random, 0)
        assert path in disk.files
