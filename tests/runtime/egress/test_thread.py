# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from queue import Queue

import pytest
from patience import SECONDS

from statefun.module.location import Location
from statefun.module.model import KafkaEgress
from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Staged
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane_set import Published
from statefun.runtime.egress.thread import EgressThread
from statefun.runtime.settings import Settings
from statefun.sdk.address import TypeName
from statefun.sdk.errors import EngineError, StatefunError

EGRESS = KafkaEgress(TypeName("t", "out"), "kafka:9092", Location("module.yaml", 1, 1))


class BrokenLanes:
    """Lanes with a defect."""

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Fail on the first batch."""
        raise ZeroDivisionError(f"{len(batches)} batches")

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """Return None: no records are kept."""

    def cancel(self) -> None:
        """Do nothing: no call waits."""

    def close(self) -> None:
        """Do nothing: the lanes have no connections."""


class LanesThatBreakAfterwards(BrokenLanes):
    """Lanes with a defect that shows after the last batch."""

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish all, and fail."""
        yield from (Published(staged, 0, 0) for staged in batches)
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("lanes", "where"), [(BrokenLanes, "batch 3"), (LanesThatBreakAfterwards, "the last batch")]
)
def test_a_defect_is_reported_with_its_traceback(
    tmp_path: Path, lanes: type[BrokenLanes], where: str
) -> None:
    """Debug shows it: the error's text alone does not say where it comes from."""
    timeout = Settings.resolve({}, None).kafka_timeout
    failed: Queue[StatefunError] = Queue()
    thread = EgressThread(
        KafkaLaneFactory(EGRESS, Folder.at(tmp_path), timeout, "run"),
        lambda published: None,
        failed.put,
    )
    thread.use(lanes())
    thread.start()

    thread.add(Staged(Manifest(batch=3), b"digest"))

    error = failed.get(timeout=SECONDS)
    thread.stop()
    assert isinstance(error, EngineError)
    assert error.message.startswith(
        f"{where} cannot be published to egress t/out: ZeroDivisionError"
    )
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert error.__cause__.__traceback__ is not None


class KeepingLanes(BrokenLanes):
    """Lanes that keep records from readers for a while."""

    def __init__(self) -> None:
        self.tended: Queue[bool] = Queue()
        self.published = 0

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish all."""
        for staged in batches:
            self.published += 1
            yield Published(staged, 0, 0)

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """Ask to be called again while records are kept."""
        self.tended.put(is_last)
        return timedelta(milliseconds=1) if self.published else None


def test_kept_records_are_shown_in_time_without_further_batches(tmp_path: Path) -> None:
    """All of them are shown when the thread ends."""
    timeout = Settings.resolve({}, None).kafka_timeout
    failed: Queue[StatefunError] = Queue()
    lanes = KeepingLanes()
    thread = EgressThread(
        KafkaLaneFactory(EGRESS, Folder.at(tmp_path), timeout, "run"),
        lambda published: None,
        failed.put,
    )
    thread.use(lanes)
    thread.start()

    thread.add(Staged(Manifest(batch=3), b"digest"))
    assert [lanes.tended.get(timeout=SECONDS) for _ in range(10)] == [False] * 10
    thread.stop()
    seen = [lanes.tended.get_nowait() for _ in range(lanes.tended.qsize())]
    assert (seen[-1], sum(seen), failed.empty()) == (True, 1, True)


class CountingLanes(KeepingLanes):
    """Lanes that write down which batches they publish."""

    def __init__(self, name: str, log: Queue[tuple[str, int]]) -> None:
        super().__init__()
        self._name = name
        self._log = log

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish all."""
        for staged in batches:
            self._log.put((self._name, staged.manifest.batch))
            yield Published(staged, 0, 0)


def test_batches_that_wait_for_a_paused_egress_keep_their_order(tmp_path: Path) -> None:
    """They are published through the lanes of their time, and later ones through those that follow."""
    timeout = Settings.resolve({}, None).kafka_timeout
    log: Queue[tuple[str, int]] = Queue()
    may_publish = threading.Event()
    published: Queue[Published] = Queue()
    failed: Queue[StatefunError] = Queue()
    thread = EgressThread(
        KafkaLaneFactory(EGRESS, Folder.at(tmp_path), timeout, "run"),
        published.put,
        failed.put,
        may_publish.is_set,
    )
    thread.use(CountingLanes("first", log))
    thread.start()
    for batch in (3, 4):
        thread.add(Staged(Manifest(batch=batch), b"digest"))
    thread.use(CountingLanes("second", log))
    thread.add(Staged(Manifest(batch=5), b"digest"))
    thread.look()
    assert log.empty()

    may_publish.set()
    thread.look()

    for _ in range(3):
        published.get(timeout=SECONDS)
    thread.stop()
    assert [log.get_nowait() for _ in range(3)] == [("first", 3), ("first", 4), ("second", 5)]
    assert failed.empty()
