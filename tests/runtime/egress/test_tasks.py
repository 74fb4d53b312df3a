# SPDX-License-Identifier: Apache-2.0
"""Tasks that publish lanes over a slow connection to a real broker."""

from __future__ import annotations

import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import cast

import attrs
import pytest
from harness import KafkaHarness
from proxy import LossyProxy
from pyspark import SparkContext, TaskContext
from pyspark.errors import PythonException

from statefun.dev import EmbeddedKafka
from statefun.engine.effects import EffectRows
from statefun.engine.sinks import EgressRecord
from statefun.module.location import Location
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, Staged, effect_stream
from statefun.runtime.egress import lane as lane_module
from statefun.runtime.egress import patience as patience_module
from statefun.runtime.egress import tasks as tasks_module
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane_set import LaneTurn, UntilStopped
from statefun.runtime.egress.refusals import OutboxPlace, Refusals
from statefun.runtime.egress.tasks import LaneState, LaneTask, TaskLanes
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.runtime.spark.session import open_session
from statefun.runtime.spark_internals.error_texts import LostWorkerError
from statefun.sdk.address import TypeName

pytestmark = pytest.mark.broker

NOWHERE = Location("module.yaml", 1, 1)
LANES = 2


@pytest.fixture(scope="module")
def slow() -> Iterator[tuple[KafkaHarness, str]]:
    """Run a broker and a proxy to it; return the broker, and the proxy's address."""
    proxy = LossyProxy()
    address = f"127.0.0.1:{proxy.port}"
    with EmbeddedKafka(config={"advertised.listeners": f"PLAINTEXT://{address}"}) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        proxy.target = (host, int(port))
        proxy.bytes_per_second = 1_000_000
        yield KafkaHarness(broker, "slow"), address
    proxy.close()


@pytest.mark.parametrize("semantic", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("chunk", [100_000, 500_000], ids=["small chunks", "long chunks"])
def test_each_task_goes_on_where_the_last_one_ended(
    slow: tuple[KafkaHarness, str],
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    semantic: str,
    chunk: int,
) -> None:
    """However short a task's time is, also shorter than a chunk takes: nothing is written again."""
    kafka, address = slow
    monkeypatch.setattr(tasks_module, "_TASK_TIME", timedelta(milliseconds=200))
    monkeypatch.setattr(lane_module, "_PORTION_BYTES", chunk)
    out, folder = kafka.topic(f"{semantic}-{chunk}"), Folder.at(checkpoint)
    query_id = str(uuid.uuid4())
    properties = {"batch.size": "20000"}
    egress = KafkaEgress(
        TypeName("t", "out"), address, NOWHERE, DeliverySemantic(semantic), properties=properties
    )
    expected: list[list[str]] = [[] for _ in range(LANES)]
    for batch in range(3):
        segments = []
        for lane in range(LANES):
            rows = EffectRows()
            for number in range(100):
                value = f"{lane} {batch} {number}"
                expected[lane].append(value)
                rows.append(EgressRecord(out, value.encode(), b"x" * 3000, None))
            stream = effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), 100)
            segments.append(Segment(partition=lane, egress={"t/out": stream}))
        manifest = Manifest(batch=batch, query_id=query_id, segments=segments, lanes=LANES)
        Outbox(folder).stage(manifest)
        folder.child("commits").write(str(batch), b"v1")
    factory = KafkaLaneFactory(egress, folder, timedelta(seconds=10), "run")
    progress, _ = factory.create_progress(query_id, LANES)
    task = LaneTask(factory, progress, (0, 1, 2))

    states, tasks = [LaneState(lane) for lane in range(LANES)], 0
    while states and tasks < 100:
        states = [state for state in task(states) if not state.is_done]
        assert not any(state.failure for state in states)
        tasks += 1

    assert 1 < tasks < 100
    written = [record.key or "" for record in kafka.receive(out)]
    for lane in range(LANES):
        assert [key for key in written if key.startswith(f"{lane} ")] == expected[lane]


class _Stalled(TaskLanes):
    """Lanes whose tasks make no progress, until all of them are done."""

    turns = 5

    def _run(self, task: LaneTask, states: Sequence[LaneState]) -> list[LaneState]:
        del task
        self.turns -= 1
        moves = self.turns < 2
        return [
            attrs.evolve(state, is_done=not self.turns or (not moves and state.lane == 0))
            for state in states
        ]


def test_waiting_of_lanes_in_tasks_is_logged(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, however many tasks run; the end of the wait is logged, too."""
    monkeypatch.setattr(patience_module, "_PATIENCE", timedelta(0))
    monkeypatch.setattr(patience_module, "_ANSWER", timedelta(milliseconds=100))
    egress = KafkaEgress(TypeName("t", "out"), "127.0.0.1:9", NOWHERE)
    factory = KafkaLaneFactory(egress, Folder.at(checkpoint), timedelta(seconds=10), "run")
    lanes = _Stalled(factory, cast("SparkContext", None), UntilStopped(threading.Event()))
    staged = Staged(Manifest(batch=0, lanes=LANES), b"")

    with caplog.at_level(logging.INFO, "statefun.egress"):
        assert len(list(lanes.publish([staged]))) == 1

    assert caplog.messages == [
        f"egress t/out: 127.0.0.1:9 {what}"
        for what in (
            "does not answer; the records stay in the outbox, and are sent again until they are accepted",
            "accepts records again",
        )
    ]


def _failing_in_tasks(fail: Callable[[], object]) -> type[KafkaLaneFactory]:
    """Return a class that makes lanes in the driver, and calls a function in tasks; workers get it by value."""

    class Failing(KafkaLaneFactory):
        def refusals(
            self, turn: LaneTurn, *, alone: bool = False, written: Collection[OutboxPlace] = ()
        ) -> Refusals:
            if TaskContext.get() is not None:
                fail()
            return super().refusals(turn, alone=alone, written=written)

    return Failing


@pytest.mark.spark
@pytest.mark.parametrize(
    ("fail", "error", "text"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), LostWorkerError, "to egress t/out, and not"),
        (lambda: {"a": 1}["no such key"], PythonException, "KeyError: 'no such key'"),
    ],
    ids=["lost", "failed"],
)
def test_a_worker_that_dies_while_it_publishes_is_a_lost_worker(
    checkpoint: Path, fail: Callable[[], object], error: type[Exception], text: str
) -> None:
    """So another run of the application publishes the records; other errors of a job stay as they are."""
    context = open_session(debug=False, state_partitions=2).sparkContext
    egress = KafkaEgress(TypeName("t", "out"), "127.0.0.1:9", NOWHERE)
    class_ = _failing_in_tasks(fail)
    factory = class_(egress, Folder.at(checkpoint), timedelta(seconds=10), "run")
    lanes = TaskLanes(factory, context, UntilStopped(threading.Event()))
    staged = Staged(Manifest(batch=0, lanes=LANES), b"")

    with pytest.raises(error, match=text):
        list(lanes.publish([staged]))
