# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs
import pytest
from patience import SECONDS
from runtime.egress.test_connector_lanes import MEMORIES, Memory
from runtime.egress.test_connector_lanes import egress as connector_egress
from simulation.cluster import ExactlyOnceModel
from simulation.publishing import SimulatedFactory, Workers
from simulation.world import World

from statefun.engine.effects import EffectRows
from statefun.engine.sinks import EgressRecord
from statefun.module.location import Location
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.protocol.runtime_pb2 import EffectStream, Manifest, Segment
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.pauses import Parts, Paused, Pauses, write_paused
from statefun.runtime.egress.connector_lanes import ConnectorLaneFactory
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane import Lane
from statefun.runtime.egress.lane_set import UntilStopped
from statefun.runtime.egress.tasks import TaskLanes
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention
from statefun.runtime.release.undeclared_egresses import undeclared_egresses
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.runtime.settings import Settings
from statefun.sdk.address import TypeName
from statefun.sdk.errors import CheckpointError, ConfigurationError, EngineError


@contextmanager
def publishing(settings: Settings) -> Iterator[Publisher]:
    """Publish the batches of a checkpoint during the block, without any egress."""
    log, outbox = CommitLog(settings.checkpoint), Outbox(settings.checkpoint)
    with closing(GroupOffsets([], [], log)) as group_offsets:
        publisher = Publisher("run", (), settings, group_offsets, Retention(settings.checkpoint))
        try:
            publisher.start(outbox.recover(log.newest()))
            yield publisher
        finally:
            publisher.stop()


def test_a_batch_whose_commit_file_is_lost_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later batch is committed, so this one was, too: a start does not wait for its file.

    Spark's files of a commit are on the disk before any step relies on them.
    """
    synced: list[int] = []
    monkeypatch.setattr(CommitLog, "sync", lambda _, batch: synced.append(batch))
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    checkpoint = settings.checkpoint
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    for batch in range(3):
        feedback = json.dumps({"batch": -1, "tick": -1})
        checkpoint.child("offsets").write(str(batch), f"v1\n{{}}\n{feedback}".encode())
        if batch != 1:
            checkpoint.child("commits").write(str(batch), b"v1\n{}")
    outbox.stage(Manifest(batch=1))
    late = threading.Event()
    timer = threading.Timer(30, late.set)
    timer.start()

    with closing(GroupOffsets([], [], log)) as group_offsets:
        publisher = Publisher("run", (), settings, group_offsets, Retention(checkpoint))
        try:
            publisher.start(outbox.recover(log.newest()))
            publisher.drain(log.newest(), late)
        except KeyboardInterrupt:
            pytest.fail("it waits for the file")
        finally:
            publisher.stop()
            timer.cancel()

    assert (synced, outbox.batches()) == ([1], [])


def test_an_error_that_ends_publishing_keeps_its_traceback(tmp_path: Path) -> None:
    """Debug mode shows it: the text of the error alone does not show its origin."""
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    checkpoint = settings.checkpoint
    with publishing(settings) as publisher:
        (tmp_path / "outbox" / "0" / "manifest").mkdir(parents=True)  # which cannot be read
        checkpoint.child("commits").write("0", b"v1\n{}")
        publisher.add(0, has_effects=True)
        with pytest.raises(EngineError, match="batch 0 cannot be published") as caught:
            publisher.drain(0, threading.Event())

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.__traceback__ is not None


def test_effects_that_are_missing_end_publishing(tmp_path: Path) -> None:
    """A batch that was staged with effects is not taken for one without any."""
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    checkpoint = settings.checkpoint
    with publishing(settings) as publisher:
        for batch in range(2):
            offsets = b'v1\n{}\n{"batch":-1,"tick":-1}'
            checkpoint.child("offsets").write(str(batch), offsets)
            checkpoint.child("commits").write(str(batch), b"v1\n{}")
        publisher.add(0, has_effects=False)
        publisher.add(1, has_effects=True)
        with pytest.raises(CheckpointError, match="the effects of batch 1 are no longer in"):
            publisher.drain(1, threading.Event())


def test_records_of_an_egress_that_is_not_declared_are_kept(tmp_path: Path) -> None:
    """The application ends, and validate says so before; egresses without unpublished records do not matter."""
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    checkpoint = settings.checkpoint
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    for batch, egress in enumerate(["a/published", "a/out", "a/uncommitted"]):
        segment = Segment(egress={egress: EffectStream(records=1)})
        outbox.stage(Manifest(batch=batch, lanes=1, segments=[segment]))
    outbox.mark_published(0)
    offsets = b'v1\n{}\n{"batch":-1,"tick":-1}'
    for batch in range(2):
        checkpoint.child("offsets").write(str(batch), offsets)
        checkpoint.child("commits").write(str(batch), b"v1\n{}")
    text = "the outbox has records for egress a/out, which module.yaml no longer declares"

    assert undeclared_egresses(checkpoint, ["a/other"]) == ["a/out"]
    assert undeclared_egresses(checkpoint, ["a/out"]) == []
    with publishing(settings) as publisher, pytest.raises(CheckpointError, match=text):
        publisher.drain(log.newest(), threading.Event())

    assert outbox.staged(1) is not None


def test_a_driver_that_has_lost_its_checkpoint_publishes_nothing(tmp_path: Path) -> None:
    """The driver that has taken over publishes the batch, from the outbox, where it stays."""
    has_lost = threading.Event()

    def guard() -> None:
        if has_lost.is_set():
            raise CheckpointError("another driver has taken over")

    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    settings = attrs.evolve(settings, checkpoint=settings.checkpoint.guarded(guard))
    checkpoint, location = settings.checkpoint, Location("module.yaml", 1, 1)
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    egress = KafkaEgress(TypeName("a", "out"), "localhost:1", location, DeliverySemantic.NONE)
    with closing(GroupOffsets([], [], log)) as group_offsets:
        publisher = Publisher(
            "run",
            KafkaLaneFactory.all_of([egress], checkpoint, settings.kafka_timeout, "run"),
            settings,
            group_offsets,
            Retention(checkpoint),
        )
        try:
            publisher.start(outbox.recover(log.newest()))
            segment = Segment(egress={"a/out": EffectStream(records=1)})
            outbox.stage(Manifest(batch=0, lanes=1, segments=[segment]))
            has_lost.set()
            Folder.at(tmp_path).child("commits").write("0", b"v1\n{}")
            publisher.add(0, has_effects=True)
            with pytest.raises(CheckpointError, match="another driver has taken over"):
                publisher.drain(0, threading.Event())
            assert publisher.waiting() == {"a/out": (0, 0)}, "no egress has the batch"
        finally:
            publisher.stop()

    assert outbox.batches() == [0]


@pytest.mark.parametrize("later", [{}, {"a/out": 1}])
def test_nothing_waits_for_a_paused_egress(tmp_path: Path, later: dict[str, int]) -> None:
    """Neither a batch for it, nor one after that, whether it has records for it or none at all."""
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    checkpoint, location = settings.checkpoint, Location("module.yaml", 1, 1)
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    write_paused(checkpoint, Parts(), Paused(egresses=frozenset({"a/out"})))
    egresses = [KafkaEgress(TypeName("a", "out"), "localhost:1", location, DeliverySemantic.NONE)]
    with closing(GroupOffsets([], [], log)) as group_offsets:
        publisher = Publisher(
            "run",
            KafkaLaneFactory.all_of(egresses, checkpoint, settings.kafka_timeout, "run"),
            settings,
            group_offsets,
            Retention(checkpoint),
            Pauses(checkpoint),
        )
        late = threading.Event()
        timer = threading.Timer(SECONDS, late.set)
        timer.start()
        try:
            publisher.start(outbox.recover(log.newest()))
            for batch, records in enumerate(({"a/out": 1}, later)):
                egress = {name: EffectStream(records=count) for name, count in records.items()}
                outbox.stage(Manifest(batch=batch, lanes=1, segments=[Segment(egress=egress)]))
                checkpoint.child("commits").write(str(batch), b"v1\n{}")
                publisher.add(batch, has_effects=True)
            publisher.drain(1, late)
        finally:
            publisher.stop()
            timer.cancel()

    assert outbox.batches() == [0, 1]


def test_records_of_an_earlier_run_do_not_count_again(tmp_path: Path) -> None:
    """A batch stays in the outbox until all egresses have published it; a later run skips what is published."""
    MEMORIES.append(Memory(every=10))
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    checkpoint = settings.checkpoint
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    write_paused(checkpoint, Parts(), Paused(egresses=frozenset({"a/paused"})))
    rows = EffectRows()
    for value in (b"1", b"2", b"3"):
        rows.append(EgressRecord("topic", b"key", value, None))
    stream = effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), 3)
    segment = Segment(egress={"a/out": stream, "a/paused": stream})
    outbox.stage(Manifest(batch=0, query_id="query", lanes=1, segments=[segment]))
    checkpoint.child("offsets").write("0", b'v1\n{}\n{"batch": -1, "tick": -1}')
    checkpoint.child("commits").write("0", b"v1\n{}")
    counts, published = [], Counter[str]()
    for run in ("first", "second"):
        egresses = [
            attrs.evolve(connector_egress("Connection"), id=TypeName("a", name))
            for name in ("out", "paused")
        ]
        factories = [ConnectorLaneFactory(each, checkpoint, run) for each in egresses]
        with closing(GroupOffsets([], [], log)) as group_offsets:
            publisher = Publisher(
                run,
                factories,
                settings,
                group_offsets,
                Retention(checkpoint),
                Pauses(checkpoint),
                published,
            )
            try:
                publisher.start(outbox.recover(0))
                publisher.drain(0, threading.Event())
            finally:
                publisher.stop()
        counts.append((publisher.records, dict(published)))

    assert MEMORIES[-1].values == [1, 2, 3]
    assert counts == [(3, {"a/out": 3}), (0, {"a/out": 3})]


@pytest.mark.parametrize("semantic", [DeliverySemantic.NONE, DeliverySemantic.AT_LEAST_ONCE])
def test_egresses_connect_at_the_start(tmp_path: Path, semantic: DeliverySemantic) -> None:
    """The first records do not wait for a connection, and wrong properties refuse the start."""
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    log, location = CommitLog(settings.checkpoint), Location("module.yaml", 1, 1)
    properties = {"compression.codec": "none at all"}
    egress = KafkaEgress(TypeName("a", "out"), "", location, semantic, properties=properties)
    with closing(GroupOffsets([], [], log)) as group_offsets:
        publisher = Publisher(
            "run",
            KafkaLaneFactory.all_of([egress], settings.checkpoint, settings.kafka_timeout, "run"),
            settings,
            group_offsets,
            Retention(settings.checkpoint),
        )
        try:
            with pytest.raises(ConfigurationError, match=r"egress a/out: .*compression\.codec"):
                publisher.start(Outbox(settings.checkpoint).recover(log.newest()))
        finally:
            publisher.stop()


def test_tasks_of_a_first_run_leave_lanes_to_whoever_has_claimed_one(tmp_path: Path) -> None:
    """The same holds if they publish in another lane, which has no marker yet."""
    world, checkpoint = World.of(0), Folder.at(tmp_path)
    world.chaos.active = False
    location = Location("module.yaml", 1, 1)
    egress = KafkaEgress(TypeName("a", "exactly"), "", location, DeliverySemantic.EXACTLY_ONCE)
    rows = EffectRows()
    rows.append(EgressRecord("topic", None, b"1 0 0", None))
    segment = Segment(
        partition=1,
        egress={"a/exactly": effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), 1)},
    )
    outbox = Outbox(checkpoint)
    outbox.stage(Manifest(batch=0, query_id="query", lanes=2, segments=[segment]))
    checkpoint.child("commits").write("0", b"v1\n{}")
    copys = Lane(
        "a/exactly",
        "run of a copy",
        checkpoint,
        lambda: ExactlyOnceModel(world.broker, "query/a/exactly/0"),
        lambda _: None,
    )
    copys.claim()
    factory = SimulatedFactory(
        egress, checkpoint, Settings.resolve({}, None).kafka_timeout, "first run", world=world
    )
    workers: object = Workers(world)
    lanes = TaskLanes(factory, workers, UntilStopped(threading.Event()))  # type: ignore[arg-type] # in its place
    staged = outbox.staged(0)
    assert staged is not None

    with pytest.raises(CheckpointError, match="another run has taken over"):
        list(lanes.publish([staged]))

    assert world.broker.log["a/exactly"] == []
