# SPDX-License-Identifier: Apache-2.0
"""When a bounded run with a final watermark is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from statefun import KafkaIngress
from statefun.engine.clock import SystemClock
from statefun.engine.watermark import EventProgress, Partition
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.event_watch import EventWatch

INGRESS = (
    KafkaIngress.for_id("test/in")
    .with_kafka_address("localhost:1")
    .with_consumer_group_id("g")
    .with_topic("in", targets=["test/f"], valueFormat={"type": "text"})
    .with_event_time(out_of_order=timedelta(0))
    .build()
)
BEFORE = EventProgress(1000, {Partition("test/in", "in", 0): 1000})
TIMER = 5000


class Run:
    """A bounded run, in which micro-batches are planned as Spark does."""

    def __init__(self, folder: Path, first: int | None) -> None:
        self.limits = [10]
        self._checkpoint = Folder.at(folder)
        self._newest = -1
        self.commit(first)
        self.watch = EventWatch(
            self._checkpoint, [INGRESS], SystemClock(), lambda: self.limits, is_final=True
        )
        self.watch.bound()

    def commit(self, read: int | None) -> None:
        """Commit a micro-batch that has read the partition up to an offset; None if there is no partition."""
        self._newest += 1
        partitions = {} if read is None else {"in": {"0": read}}
        sources = [partitions, {"batch": -1, "tick": -1}]
        lines = ["v1", "{}", *map(json.dumps, sources)]
        self._checkpoint.child("offsets").write(str(self._newest), "\n".join(lines).encode())
        self._checkpoint.child("commits").write(str(self._newest), b"v1\n{}")

    def watermark(self) -> int | None:
        """Plan a micro-batch; return its watermark."""
        return self.watch.progress(BEFORE, [], self._newest, TIMER).watermark


@contextmanager
def bounded(folder: Path, first: int | None = 7) -> Iterator[Run]:
    """Return a run, and stop it at the end of the block."""
    run = Run(folder, first)
    try:
        yield run
    finally:
        run.watch.stop()


def test_it_is_over_after_a_micro_batch_without_records(tmp_path: Path) -> None:
    """The watermark then comes to the next timer."""
    with bounded(tmp_path) as run:
        seen = [run.watermark()]
        for read in (9, 9):
            run.commit(read)
            seen += [run.watch.ends_soon, run.watermark()]

    assert seen == [1000, True, 1000, True, TIMER]


def test_it_is_not_over_while_an_ingress_is_paused(tmp_path: Path) -> None:
    """Whatever is paused, be it for a moment between two looks, has records that must not become late."""
    with bounded(tmp_path) as run:
        run.watermark()
        run.limits = [0]
        run.commit(7)
        assert run.watermark() == 1000
        assert not run.watch.ends_soon, "a bounded run must end"
        run.commit(7)
        assert run.watermark() == 1000

        run.limits = [10]
        for _ in range(2):  # both may have been planned before the change
            run.commit(7)
            assert run.watermark() == 1000
            assert run.watch.ends_soon
        run.commit(7)
        assert run.watermark() == TIMER


def test_it_is_over_if_there_is_nothing_to_read(tmp_path: Path) -> None:
    """A pattern may match no topic; the run would not end."""
    with bounded(tmp_path, None) as run:
        run.watermark()
        run.commit(None)

        assert run.watermark() == TIMER
