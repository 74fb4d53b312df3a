# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest
from harness import KafkaHarness
from harness import run as run_application
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from statefun import StatefulFunctions
from statefun.engine.wheel import due_tick
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime import application_run
from statefun.runtime.checkpoint import timer_log
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.release.retention import Retention
from statefun.runtime.spark.session import open_session
from statefun.sdk.errors import ConfigurationError


@pytest.mark.broker
@pytest.mark.spark
def test_batches_are_retained_for_as_long_as_they_may_wait(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting of Spark that deletes their offsets earlier is refused by name."""
    retained = "spark.sql.streaming.minBatchesToRetain"

    def open_with(batches: int) -> None:
        def open_it(**settings: Any) -> SparkSession:
            session = open_session(**settings)
            session.conf.set(retained, batches)
            return session

        monkeypatch.setattr(application_run, "open_session", open_it)

    module = kafka.module({kafka.topic("users"): ["test.fns/any"]})
    functions = StatefulFunctions()
    functions.register("test.fns/any", lambda ctx, message: None)
    open_with(16)
    with pytest.raises(ConfigurationError) as caught:
        run_application(module, functions, checkpoint)
    open_with(17)
    run_application(module, functions, checkpoint)

    assert caught.value.message == (
        f"{retained} must be at least 17, but is 16: up to 16 batches may wait for their egresses, "
        "and need their offsets"
    )


class CrashError(BaseException):
    """The driver dies here."""


class Disk(Folder):
    """Real files, whose writer dies before one of its writes or deletions."""

    steps_left = 0

    def child(self, name: str) -> Disk:
        """Return a folder inside this one."""
        return Disk(super().child(name).location)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or die before."""
        self._step()
        super().write(name, content)

    def remove(self, name: str) -> None:
        """Delete a file, or die before."""
        self._step()
        super().remove(name)

    def remove_all(self) -> None:
        """Delete the folder, or die before."""
        self._step()
        super().remove_all()

    def _step(self) -> None:
        Disk.steps_left -= 1
        if Disk.steps_left < 0:
            raise CrashError


@attrs.frozen
class Batch:
    """The actions of functions in a batch, and the number of unpublished batches."""

    buckets: frozenset[int]
    """Timers that are set, by the ticks from now until they are due."""
    has_egress: bool = False
    lag: int = 0
    """How many batches wait to be published when it is committed."""


def staged(number: int, batch: Batch) -> Manifest:
    """Return the manifest of a batch; a tick passes with each one."""
    segment = Segment()
    if batch.buckets:
        segment.messages.CopyFrom(effect_stream(b"", 1))
        segment.buckets.extend(sorted(8 * (number + ticks) for ticks in batch.buckets))
    if batch.has_egress:
        segment.egress["e"].CopyFrom(effect_stream(b"", 1))
    return Manifest(batch=number, segments=[segment])


def run(disk: Disk, batches: Sequence[Batch]) -> None:
    """Run a driver's steps on its outbox, from the state that the last one has left."""
    outbox, commit_log = Outbox(disk), CommitLog(disk)
    newest = commit_log.newest()
    leftovers = outbox.recover(newest)
    retention = Retention(disk)
    retention.start(leftovers)
    waiting = list(leftovers.unpublished)

    def publish() -> None:
        number = waiting.pop(0)
        manifest = outbox.manifest(number)
        assert manifest is not None
        retention.published(manifest)
        retention.committed(number)

    for number in range(newest + 1, len(batches)):
        feedback = json.dumps({"batch": number - 1, "tick": number})
        disk.child("offsets").write(str(number), f"v1\n{{}}\n{feedback}".encode())
        outbox.stage(staged(number, batches[number]))
        disk.child("commits").write(str(number), b"v1\n{}")
        waiting.append(number)
        while len(waiting) > batches[number].lag:
            publish()
    while waiting:
        publish()


def forgotten(disk: Folder, batches: Sequence[Batch]) -> set[int]:
    """Return the buckets that neither the log nor the outbox has, and that had no tick yet."""
    commit_log, outbox = CommitLog(disk), Outbox(disk)
    newest = commit_log.newest()
    if newest < 0:
        return set()
    tick = feedback_offset(commit_log, newest).tick
    known = set(TimerLog(disk).load().all())
    for number in outbox.batches():
        known |= timer_buckets(outbox.manifest(number) or Manifest())
    committed = [staged(number, batches[number]) for number in range(newest + 1)]
    return {
        bucket
        for manifest in committed
        for bucket in timer_buckets(manifest)
        if due_tick(bucket) > tick
    } - known


def crashes(steps: Sequence[int]) -> Iterator[int]:
    """Return after how many steps each run dies; the last one does not."""
    yield from steps
    yield 10**9


BATCHES = st.lists(
    st.builds(
        Batch, st.frozensets(st.integers(1, 30), max_size=2), st.booleans(), st.integers(0, 3)
    ),
    min_size=1,
    max_size=14,
)
TIMER = Batch(frozenset({25}))
TIMER_AND_RECORD = Batch(frozenset({26}), has_egress=True)

TWO_TIMERS = Batch(frozenset({2, 20}), lag=3)
LATE = Batch(frozenset({25}), lag=3)


@settings(max_examples=300)
@given(batches=BATCHES, steps=st.lists(st.integers(0, 60), max_size=5), length=st.integers(1, 4))
# Batch 2 is marked as published, batch 1 is not; then batch 2 brings a snapshot.
@example([TIMER, TIMER, TIMER_AND_RECORD, TIMER], [13], 2)
# Batch 0 is logged, and not deleted; then one of its buckets is due, and the other one is known.
@example([TWO_TIMERS, LATE, Batch(frozenset())], [10], 4)
def test_no_timer_is_forgotten(batches: list[Batch], steps: list[int], length: int) -> None:
    """This holds for any order in which batches are finished, and wherever drivers crash."""
    with (
        mock.patch.object(timer_log, "_LOG_LENGTH", length),
        tempfile.TemporaryDirectory() as folder,
    ):
        disk = Disk.at(folder)
        assert isinstance(disk, Disk)
        for Disk.steps_left in crashes(steps):
            with contextlib.suppress(CrashError):
                run(disk, batches)
            assert forgotten(Folder.at(folder), batches) == set()
        assert CommitLog(disk).newest() == len(batches) - 1
