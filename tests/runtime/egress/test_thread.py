# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Queue

import pytest

from statefun.module.location import Location
from statefun.module.model import KafkaEgress
from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Staged
from statefun.runtime.egress.lane_set import LaneFactory, Published
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

    def cancel(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


class LanesThatBreakBehind(BrokenLanes):
    """Lanes with a defect behind the last batch."""

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish all, and fail."""
        yield from (Published(staged, 0) for staged in batches)
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("lanes", "where"), [(BrokenLanes, "batch 3"), (LanesThatBreakBehind, "the last batch")]
)
def test_a_defect_is_told_with_its_traceback(
    tmp_path: Path, lanes: type[BrokenLanes], where: str
) -> None:
    """Debug shows it: the error's text alone does not say where it comes from."""
    timeout = Settings.resolve({}, None).kafka_timeout
    failed: Queue[StatefunError] = Queue()
    thread = EgressThread(
        LaneFactory(EGRESS, Folder.at(tmp_path), timeout, "run"),
        lambda published: None,
        failed.put,
    )
    thread.use(lanes())
    thread.start()

    thread.add(Staged(Manifest(batch=3), b"digest"))

    error = failed.get(timeout=30)
    thread.stop()
    assert isinstance(error, EngineError)
    assert error.message.startswith(
        f"{where} cannot be published to egress t/out: ZeroDivisionError"
    )
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert error.__cause__.__traceback__ is not None
