# SPDX-License-Identifier: Apache-2.0
"""Exactly-once on a real broker: lanes by themselves, and whole applications."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import OFFSET_INVALID, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import KafkaHarness, run, wait
from patience import SECONDS
from proxy import LossyProxy

from statefun import (
    CheckpointError,
    Context,
    IntType,
    KafkaEgressMessage,
    KafkaError,
    Message,
    StatefulFunctions,
    TopicError,
    ValueSpec,
)
from statefun.dev import EmbeddedKafka
from statefun.engine.effects import EffectRows
from statefun.engine.sinks import EgressRecord
from statefun.module.location import Location
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.former_queries import add_former_query, former_queries
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.egress import producers as kafka_module
from statefun.runtime.egress import progress_topic
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane import Cluster, Lane, LaneBatch, UncertainError
from statefun.runtime.egress.lane_set import UntilStopped
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.patience import Patience, RecordCounter
from statefun.runtime.egress.producers import AtLeastOnce, ExactlyOnce
from statefun.runtime.egress.progress_topic import ProgressTopic
from statefun.runtime.egress.refusals import Refusals
from statefun.runtime.egress.unconfirmed import Unconfirmed
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.runtime.settings import Settings
from statefun.runtime.spark_internals.log_files import METADATA
from statefun.sdk.address import TypeName

pytestmark = [pytest.mark.broker, pytest.mark.takes(minutes=1.3)]
spark = pytest.mark.spark

NOWHERE = Location("module.yaml", 1, 1)
TIMEOUT = timedelta(seconds=10)


@attrs.define
class Bench:
    """A checkpoint with staged batches, and an exactly-once egress."""

    kafka: KafkaHarness
    out: str
    folder: Folder
    query_id: str
    egress: KafkaEgress
    runs: set[str] = attrs.field(factory=set)
    """The runs that the checkpoint knows."""

    def stage(self, batch: int, *values: str, partition: int = 0) -> LaneBatch:
        """Stage and commit a batch; return the records of lane 0."""
        rows = EffectRows()
        for value in values:
            rows.append(EgressRecord(self.out, b"key", value.encode(), None))
        stream = effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), len(values))
        segment = Segment(partition=partition, egress={str(self.egress.id): stream})
        outbox = Outbox(self.folder)
        outbox.stage(Manifest(batch=batch, query_id=self.query_id, segments=[segment], lanes=1))
        self.folder.child("commits").write(str(batch), b"v1")
        staged = outbox.staged(batch)
        assert staged is not None
        return LaneBatch.of(staged, str(self.egress.id), 0)

    def progress(self) -> ProgressTopic:
        """Return the progress topic, which exists."""
        progress = ProgressTopic(self.egress, self.query_id)
        progress.create(1, TIMEOUT)
        return progress

    def cluster(self, lane: int = 0) -> ExactlyOnce:
        """Connect once."""
        patience, progress = Patience(self.egress), self.progress()
        refusals = Refusals(self.egress)
        return ExactlyOnce(self.egress, lambda _: False, patience, refusals, progress, lane)

    def producer(self) -> Producer:
        """Open a transaction in the lane's name."""
        properties = {
            "bootstrap.servers": self.kafka.address,
            "transactional.id": f"{self.progress().name}-0",
        }
        producer = Producer(properties)
        producer.init_transactions(10)
        producer.begin_transaction()
        return producer

    def lane(
        self,
        connect: Callable[[], Cluster] | None = None,
        pause: Callable[[str], None] | None = None,
    ) -> Lane:
        """Return a lane that a new driver has taken over."""
        run = uuid.uuid4().hex
        self.runs.add(run)
        lane = Lane(
            "egress t/out",
            run,
            self.folder,
            connect or self.cluster,
            pause or fail,
            chunk_records=2,
        )
        lane.open(self.runs)
        lane.claim()
        return lane

    def copied(self, folder: Path) -> Bench:
        """Return a bench with a copy of the checkpoint."""
        shutil.copytree(self.folder.location, folder)
        return attrs.evolve(self, folder=Folder.at(folder), runs=set(self.runs))

    def values(self) -> list[str]:
        """Read the committed records."""
        return [record.value for record in self.kafka.receive(self.out)]


def mark(progress: ProgressTopic, producer: Producer, marker: Marker) -> None:
    """Write a marker of lane 0 in the transaction that a producer has open."""
    record = progress.record(0, marker)
    producer.produce(record.topic, record.value, record.key, partition=0)


def patiently(read: Callable[[], Marker | None]) -> Marker | None:
    """Read a marker as a lane does: again, while a new partition has no leader."""
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while True:
        try:
            return read()
        except UncertainError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def fail(reason: str) -> None:
    """Give up at once."""
    raise AssertionError(reason)


def carry_on(reason: str) -> None:
    """Wait for nothing."""


@pytest.fixture
def bench(kafka: KafkaHarness, checkpoint: Path) -> Bench:
    """Return a checkpoint and egress of the test's own."""
    egress = KafkaEgress(
        TypeName("t", "out"), kafka.address, NOWHERE, DeliverySemantic.EXACTLY_ONCE
    )
    return Bench(kafka, kafka.topic("out"), Folder.at(checkpoint), str(uuid.uuid4()), egress)


def test_published_records_are_not_published_again(bench: Bench) -> None:
    """A new driver that knows nothing but the outbox reads the marker and skips."""
    batches = [bench.stage(0, "a", "b", "c"), bench.stage(2, "d")]
    for _ in range(3):
        lane = bench.lane()
        for batch in batches:
            lane.publish(batch)
        lane.close()

    assert bench.values() == ["a", "b", "c", "d"]
    marker = bench.progress().read(0)
    assert marker is not None
    assert marker[:3] == (2, 1, batches[1].digest)
    assert {marker.publisher, marker.owner} <= bench.runs
    assert marker.publisher != marker.owner


def test_a_restored_application_ends_the_transactions_of_the_lost_one(bench: Bench) -> None:
    """Readers of committed records would see nothing behind them until they time out."""
    lost = bench.producer()
    lost.produce(bench.out, b"lost")
    lost.flush(SECONDS)
    add_former_query(bench.folder, bench.query_id)
    restored = attrs.evolve(bench, query_id=str(uuid.uuid4()))
    bench.folder.write(METADATA, json.dumps({"id": restored.query_id}).encode())
    bench.stage(0, "restored")
    feedback = json.dumps({"batch": -1, "tick": -1})
    bench.folder.child("offsets").write("0", f"v1\n{{}}\n{feedback}".encode())

    publish_all(restored)

    assert restored.values() == ["restored"]
    assert former_queries(bench.folder) == []


def publish_all(bench: Bench) -> None:
    """Start publishing as an application does, and publish the batches that are committed."""
    settings, log = (
        Settings.resolve({}, None, checkpoint=Path(bench.folder.location)),
        CommitLog(bench.folder),
    )
    lanes = KafkaLaneFactory.all_of([bench.egress], bench.folder, settings.kafka_timeout, "run")
    with contextlib.closing(GroupOffsets([], [], log)) as group_offsets:
        publisher = Publisher("run", lanes, settings, group_offsets, Retention(bench.folder))
        try:
            publisher.start(Outbox(bench.folder).recover(log.newest()))
            publisher.drain(log.newest(), threading.Event())
        finally:
            publisher.stop()


@attrs.define
class Failing:
    """A cluster of which some answers get lost."""

    cluster: Cluster
    writes: list[str]
    """The fate of each write: it succeeds, or is lost before or after it took effect."""

    def open(self) -> Marker | None:
        """Open the cluster."""
        return self.cluster.open()

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write, or lose the request or its answer."""
        what = self.writes.pop(0) if self.writes else "fine"
        if what != "before":
            self.cluster.write(records, marker)
        if what != "fine":
            raise UncertainError(what)

    def close(self) -> None:
        """Close the cluster."""
        self.cluster.close()


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_lost_answer_neither_loses_nor_repeats(bench: Bench, lost: str) -> None:
    """The lane finds out by the marker whether its second chunk was committed."""
    writes = ["fine", "fine", lost]  # the first one claims the lane
    lane = bench.lane(lambda: Failing(bench.cluster(), writes), carry_on)
    lane.publish(bench.stage(0, *"abcde"))
    lane.close()

    assert bench.values() == [*"abcde"]


def test_a_small_queue_of_the_producer_is_enough(bench: Bench) -> None:
    """Records wait for room in the queue, and so does the marker after them."""
    properties = {"queue.buffering.max.messages": "2"}
    bench.egress = attrs.evolve(bench.egress, properties=properties)
    lane = bench.lane()
    lane.publish(bench.stage(0, *"abcde"))
    lane.close()

    assert bench.values() == [*"abcde"]


def test_a_driver_that_died_in_a_transaction_leaves_no_trace(bench: Bench) -> None:
    """The successor aborts its records at once, not after a timeout."""
    dying = bench.producer()
    dying.produce(bench.out, b"half", b"key")
    mark(bench.progress(), dying, Marker(0, 1, b"x", "r", "r"))
    assert dying.flush(10) == 0

    lane = bench.lane()
    lane.publish(bench.stage(0, "a"))
    lane.close()

    assert bench.values() == ["a"]


def test_a_marker_is_not_believed_without_the_offsets_of_its_partition(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client returns an invalid offset for a cluster that has not answered; a transaction may be open there."""

    class Unanswered(AdminClient):
        def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
            found = super().list_offsets(*args, **kwargs)
            for answer in found.values():
                answer.result().offset = OFFSET_INVALID
            return found

    producer = bench.producer()
    mark(bench.progress(), producer, Marker(0, 1, b"x", "r", "r"))
    assert producer.flush(10) == 0
    with pytest.raises(UncertainError, match="still has an open transaction"):
        bench.progress().read(0)
    progress = bench.progress()
    unanswered = Unanswered({"bootstrap.servers": bench.kafka.address})
    monkeypatch.setattr(progress_topic, "admin_for", lambda *_: unanswered)

    with pytest.raises(UncertainError, match="Timed out"):
        progress.read(0)

    producer.abort_transaction(10)


def test_a_zombie_is_fenced(bench: Bench) -> None:
    """Once a successor has opened the lane, its predecessor cannot write."""
    zombie = bench.cluster()
    zombie.open()
    batch = bench.stage(0, "a", "b")
    lane = bench.lane()
    lane.publish(batch)

    with pytest.raises(UncertainError):
        zombie.write([*batch.records(Outbox(bench.folder))], Marker(0, 2, batch.digest, "r", "r"))
    zombie.close()
    lane.close()

    assert bench.values() == ["a", "b"]


def test_an_egress_that_promises_nothing_outlives_its_producer(bench: Bench) -> None:
    """A producer that has failed for good is replaced, and the next one finishes the batch."""

    class Fenced(Unconfirmed):  # which is the failure that can be had at will
        def open(self) -> None:
            self._producer.init_transactions(10)
            self._producer.begin_transaction()
            settings = {"transactional.id": bench.out, "bootstrap.servers": bench.kafka.address}
            Producer(settings).init_transactions(10)

    named = attrs.evolve(bench.egress, properties={"transactional.id": bench.out})
    patience, losses = Patience(named), RecordCounter(named, "lost")
    broken = Fenced(named, lambda _: False, patience, losses)
    clusters = [broken, Unconfirmed(bench.egress, lambda _: False, patience, losses)]
    reasons: list[str] = []
    lane = Lane("egress t/out", "run", bench.folder, lambda: clusters.pop(0), reasons.append)

    number = 0
    while not reasons and number < 100:
        lane.publish(bench.stage(number, f"{number}"))
        number += 1
        time.sleep(0.1)
    lane.close()

    assert len(reasons) == 1
    assert bench.values() == [f"{number - 1}"]


@pytest.mark.parametrize("semantic", [AtLeastOnce, ExactlyOnce, Unconfirmed])
def test_a_producer_that_has_written_to_very_many_topics_is_replaced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, semantic: type[AtLeastOnce]
) -> None:
    """It remembers all of them for as long as it lives; no record is repeated, nor lost if it had an answer."""
    monkeypatch.setattr(kafka_module, "MOST_NAMES", 3)
    egress, made, reasons = bench.egress, list[AtLeastOnce](), list[str]()
    patience, losses = Patience(egress), RecordCounter(egress, "lost")

    def connect() -> Cluster:
        if semantic is Unconfirmed:
            made.append(Unconfirmed(egress, lambda _: False, patience, losses))
        elif semantic is AtLeastOnce:
            made.append(AtLeastOnce(egress, lambda _: False, patience, Refusals(egress)))
        else:
            made.append(bench.cluster())
        return made[-1]

    lane = Lane("egress t/out", "run", bench.folder, connect, reasons.append)
    topics = [bench.kafka.topic(f"many-{number}") for number in range(10)]
    for number, topic in enumerate([*topics, *topics]):
        lane.publish(attrs.evolve(bench, out=topic).stage(number, f"{number}"))
        assert made[-1]._producer.flush(SECONDS) == 0  # noqa: SLF001 - also the one that waits for nothing
    lane.close()

    reason = "the lane needs another producer, as this one has written to 4 topics"
    assert reasons.count(reason) == 4
    assert len(made) == len(reasons) + 1
    found = [[record.value for record in bench.kafka.receive(topic)] for topic in topics]
    assert found == [[f"{number}", f"{number + 10}"] for number in range(10)]


def test_an_older_copy_of_a_checkpoint_is_refused(bench: Bench, tmp_path: Path) -> None:
    """Batches would get their numbers again, with other contents."""
    bench.lane().publish(bench.stage(0, "a"))
    restored = bench.copied(tmp_path / "copy")
    bench.lane().publish(bench.stage(1, "b"))

    with pytest.raises(
        CheckpointError, match=r"batch 1 is published, but .* is 0: this checkpoint is an older"
    ):
        restored.lane()


def test_an_older_copy_with_fewer_lanes_is_refused(bench: Bench) -> None:
    """Records ahead of it may be published in a lane that it does not use any more."""
    bench.stage(0, "a")
    bench.progress().create(2, TIMEOUT)
    ahead = bench.cluster(lane=1)
    ahead.open()
    ahead.write([], Marker(1, 1, b"d", "r", "r"))
    ahead.close()
    factory = KafkaLaneFactory(bench.egress, bench.folder, TIMEOUT, "r")
    lanes = factory.driver_lanes(UntilStopped(threading.Event()))

    with pytest.raises(
        CheckpointError, match=r"batch 1 is published, but .* is 0: this checkpoint is an older"
    ):
        lanes.open(bench.query_id, 1, {"r"})
    lanes.close()


def test_another_attempt_at_a_published_batch_is_refused(bench: Bench, tmp_path: Path) -> None:
    """The digest of its manifest shows that a batch was changed after it was published."""
    bench.lane().publish(bench.stage(0, "a"))
    lane = bench.lane()
    lane.publish(bench.stage(1, "b"))

    with pytest.raises(CheckpointError, match="another attempt at batch 1 is published"):
        lane.publish(bench.stage(1, "not b"))

    assert bench.values() == ["a", "b"]


def test_two_copies_that_take_turns_are_refused(bench: Bench, tmp_path: Path) -> None:
    """Both have a batch of the number that is published; but only one knows the run."""
    bench.lane().publish(bench.stage(0, "a"))
    other = bench.copied(tmp_path / "copy")
    other.stage(1, "not b")
    other.stage(2, "c")
    bench.lane().publish(bench.stage(1, "b"))

    with pytest.raises(
        CheckpointError, match="a run with a copy of this checkpoint has published its own batch 1"
    ):
        other.lane()

    assert bench.values() == ["a", "b"]


def test_a_backup_is_as_good_as_ever_if_only_its_own_batches_were_published(
    bench: Bench, tmp_path: Path
) -> None:
    """A new version publishes the remaining records, fails, and is rolled back."""
    bench.lane().publish(bench.stage(0, "a", "b"))
    left = bench.stage(1, "c", "d")
    backup = bench.copied(tmp_path / "backup")
    bench.lane().publish(left)

    for _ in range(2):  # at the second start the batch is not in the outbox any more
        lane = backup.lane()
        lane.publish(left)
        lane.close()
        Outbox(backup.folder).remove(1)
    lane = backup.lane()
    lane.publish(backup.stage(2, "e"))
    lane.close()

    assert bench.values() == [*"abcde"]


def test_a_driver_that_was_replaced_by_one_on_a_copy_ends(bench: Bench, tmp_path: Path) -> None:
    """It is fenced, finds out by whom, and leaves the lane to that one, which goes on."""
    replaced = bench.lane(pause=carry_on)
    replaced.publish(bench.stage(0, "a"))
    copy = bench.copied(tmp_path / "copy")
    successor = copy.lane(pause=carry_on)

    with pytest.raises(
        CheckpointError, match="another run has taken over the lanes, with this checkpoint or a"
    ):
        replaced.publish(bench.stage(1, "not b"))
    successor.publish(copy.stage(1, "b"))
    successor.close()

    assert bench.values() == ["a", "b"]


def test_a_driver_on_a_copy_in_its_first_start_is_refused(bench: Bench, tmp_path: Path) -> None:
    """The first run connects when it has something; until then a copy may have taken over."""
    bench.folder.write("metadata", b"{}")
    bench.copied(tmp_path / "copy").lane().close()
    first = Lane("egress t/out", "first", bench.folder, bench.cluster, fail)

    with pytest.raises(
        CheckpointError, match="another run has taken over the lanes, with this checkpoint or a"
    ):
        first.publish(bench.stage(0, "a"))

    assert bench.values() == []


def test_a_transaction_that_took_too_long_does_not_end_the_driver(bench: Bench) -> None:
    """The broker fences its producer, as a successor would; but the lane is still its own."""
    bench.egress = attrs.evolve(bench.egress, transaction_timeout=timedelta(seconds=1))
    reasons: list[str] = []

    class Slow(ExactlyOnce):
        def _flush(self) -> None:
            super()._flush()
            if len(flushes) == 1:  # the claim was the first one
                time.sleep(15)  # the broker looks for such transactions every ten seconds
            flushes.append("flush")

    flushes: list[str] = []
    lane = bench.lane(
        lambda: Slow(
            bench.egress,
            lambda _: False,
            Patience(bench.egress),
            Refusals(bench.egress),
            bench.progress(),
            0,
        ),
        reasons.append,
    )
    lane.publish(bench.stage(0, "a", "b", "c"))
    lane.close()

    assert bench.values() == ["a", "b", "c"]
    assert len(reasons) == 1


def test_a_marker_is_found_among_many_others(bench: Bench) -> None:
    """The newest one counts, wherever the topic's end is."""
    progress = bench.progress()
    cluster = bench.cluster()
    cluster.open()
    for number in range(150):
        cluster.write([], Marker(number, 1, b"d", "r", "r"))
    cluster.close()
    producer = bench.producer()
    for _ in range(500):
        mark(progress, producer, Marker(999, 1, b"d", "r", "r"))
    assert producer.flush(10) == 0
    producer.abort_transaction()

    assert progress.read(0) == Marker(149, 1, b"d", "r", "r")


def test_a_progress_topic_that_deletes_markers_is_refused(bench: Bench) -> None:
    """Markers that expire would mean duplicates after a long stop."""
    name = ProgressTopic(bench.egress, bench.query_id).name
    admin = AdminClient({"bootstrap.servers": bench.kafka.address})
    admin.create_topics([NewTopic(name, 1)])[name].result(10)

    with pytest.raises(TopicError, match=r"has the cleanup.policy delete, which deletes markers"):
        bench.progress()


def test_a_progress_topic_that_somebody_has_just_created_is_checked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that creates topics by itself gives them a policy that deletes markers."""
    progress = ProgressTopic(bench.egress, bench.query_id)
    before = AdminClient({"bootstrap.servers": bench.kafka.address}).list_topics(timeout=SECONDS)
    monkeypatch.setattr(progress_topic, "cluster_metadata", lambda *_: before)
    bench.kafka.broker.create_topic(progress.name)

    with pytest.raises(TopicError, match=r"has the cleanup.policy delete, which deletes markers"):
        progress.create(1, TIMEOUT)


@pytest.mark.parametrize(
    ("one", "other"),
    [("\u58f2\u4e0a", "\u5728\u5eab"), ("x" * 300 + "1", "x" * 300 + "2"), ("a_b", "a/b")],
)
def test_egresses_do_not_share_their_progress(bench: Bench, one: str, other: str) -> None:
    """Egresses with similar ids do not fence each other."""
    names = [TypeName("t", one), TypeName("t", other)]
    benches = [attrs.evolve(bench, egress=attrs.evolve(bench.egress, id=name)) for name in names]
    topics = [ProgressTopic(each.egress, bench.query_id) for each in benches]
    for topic in topics:
        topic.create(1, TIMEOUT)
    clusters = []
    for each, topic in zip(benches, topics, strict=True):
        patience, refusals = Patience(each.egress), Refusals(each.egress)
        clusters.append(ExactlyOnce(each.egress, lambda _: False, patience, refusals, topic, 0))
    for cluster in clusters:
        cluster.open()
    for number, cluster in enumerate(clusters):
        record = EgressRecord(bench.out, None, f"{number}".encode(), None)
        cluster.write([record], Marker(number, 1, b"d", "r", "r"))
        cluster.close()

    assert bench.values() == ["0", "1"]
    assert [patiently(partial(topic.read, 0)) for topic in topics] == [
        Marker(number, 1, b"d", "r", "r") for number in range(2)
    ]


def test_more_lanes_get_more_partitions(bench: Bench) -> None:
    """A progress topic grows with the number of lanes."""
    progress = bench.progress()
    progress.create(3, TIMEOUT)

    admin = AdminClient({"bootstrap.servers": bench.kafka.address})

    def count() -> int:
        return len(
            admin.list_topics(progress.name, timeout=SECONDS).topics[progress.name].partitions
        )

    wait(lambda: count() == 3)  # a broker knows of new partitions a moment later
    assert patiently(lambda: progress.read(2)) is None


def test_a_transaction_timeout_that_the_broker_refuses_is_named(bench: Bench) -> None:
    """The broker has a maximum, and says so at once."""
    bench.egress = attrs.evolve(bench.egress, transaction_timeout=timedelta(hours=5))

    with pytest.raises(KafkaError, match=r"egress t/out at .*Transaction timeout is larger"):
        bench.cluster().open()


def test_an_unreachable_cluster_is_named(bench: Bench) -> None:
    """The error has the address, and how long it was tried."""
    egress = attrs.evolve(bench.egress, address="127.0.0.1:9")
    factory = KafkaLaneFactory(egress, bench.folder, timedelta(seconds=1), "r")

    with pytest.raises(KafkaError, match=r"no Kafka broker answered at 127.0.0.1:9 within 1 s"):
        factory.create_progress("q", 1)


def counting(topic: str) -> StatefulFunctions:
    """Return a function that numbers the messages of each address."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/count", specs=[ValueSpec("seen", IntType)])
    def count(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        value = f"{ctx.address.id} {ctx.storage.seen}"
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key=ctx.address.id, value=value))

    return functions


@pytest.mark.long(minutes=1)
@spark
@pytest.mark.parametrize("semantic", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_every_number_of_lanes_publishes_everything_in_order(
    kafka: KafkaHarness, checkpoint: Path, semantic: str, lanes: int
) -> None:
    """In the driver or as Spark tasks, over restarts that change the number of lanes."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]}, semantic=semantic)
    ids = [f"user-{number}" for number in range(20)]

    for run_lanes in (lanes, 1 if lanes > 1 else 2):
        kafka.send(users, [(id_, "x") for id_ in ids for _ in range(2)])
        summary = run(
            module,
            counting(out),
            checkpoint,
            egress_lanes=run_lanes,
            state_partitions=2,
            records_per_batch=25,
        )
        assert summary.egress_records == 40

    received = [record.value for record in kafka.receive(out)]
    for id_ in ids:
        mine = [value for value in received if value.split()[0] == id_]
        assert mine == [f"{id_} {number}" for number in (1, 2, 3, 4)]


@spark
def test_a_missing_topic_stops_the_application_and_loses_no_record(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Once it is created, the next start publishes the committed records, once."""
    users = kafka.topic("users")
    out = f"{users}.late"
    module = kafka.module({users: ["test.fns/count"]}, semantic="exactly-once")
    kafka.send(users, [("Ada", "x")])

    with pytest.raises(
        TopicError, match=r"egress test/out: topic .*late does not exist at .*; create it; the rec"
    ):
        run(module, counting(out), checkpoint)
    kafka.broker.create_topic(out)
    run(module, counting(out), checkpoint)
    run(module, counting(out), checkpoint)

    assert [record.value for record in kafka.receive(out)] == ["Ada 1"]


@spark
def test_a_deleted_checkpoint_starts_anew(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Its batches have the numbers of the old one's, and meet none of its markers."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module(
        {users: ["test.fns/count"]},
        semantic="exactly-once",
        start="{type: group-offsets}",
        group=users,
        reset="earliest",
    )
    for value in ("old", "new"):
        kafka.send(users, [("Ada", value)])
        run(module, counting(out), checkpoint)
        shutil.rmtree(checkpoint)

    assert [record.value for record in kafka.receive(out)] == ["Ada 1", "Ada 1"]


@spark
def test_a_restored_checkpoint_is_refused_before_anything_runs(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """The application says that its checkpoint is an older copy."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]}, semantic="exactly-once")
    kafka.send(users, [("Ada", "x")])
    run(module, counting(out), checkpoint)
    shutil.copytree(checkpoint, tmp_path / "copy")
    kafka.send(users, [("Ada", "x")])
    run(module, counting(out), checkpoint)
    newest = CommitLog(Folder.at(tmp_path / "copy")).newest()

    with pytest.raises(CheckpointError, match="this checkpoint is an older copy"):
        run(module, counting(out), tmp_path / "copy")

    assert CommitLog(Folder.at(tmp_path / "copy")).newest() == newest
    assert [record.value for record in kafka.receive(out)] == ["Ada 1", "Ada 2"]


def test_producers_of_others_are_not_mistaken_for_markers(bench: Bench) -> None:
    """Something else in the progress topic is named with its place."""
    progress = bench.progress()
    producer = Producer({"bootstrap.servers": bench.kafka.address})
    producer.produce(progress.name, b"\xff", b"t/out/0", partition=0)
    producer.produce(progress.name, b"\xff", b"another key", partition=0)
    producer.flush(10)

    with pytest.raises(CheckpointError, match=r"partition 0, offset 0 at .* must be a marker"):
        progress.read(0)


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[tuple[LossyProxy, Bench]]:
    """Return a bench that reaches its broker through a proxy."""
    proxy = LossyProxy()
    advertised = f"PLAINTEXT://127.0.0.1:{proxy.port}"
    with EmbeddedKafka(config={"advertised.listeners": advertised}) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        proxy.target = (host, int(port))
        egress = KafkaEgress(
            TypeName("t", "out"),
            f"127.0.0.1:{proxy.port}",
            NOWHERE,
            DeliverySemantic.EXACTLY_ONCE,
        )
        kafka = KafkaHarness(broker, "lossy")
        folder = Folder.at(tmp_path / "checkpoint")
        yield proxy, Bench(kafka, kafka.topic("out"), folder, str(uuid.uuid4()), egress)
    proxy.close()


@pytest.mark.long(minutes=0.6)
def test_answers_to_commits_get_lost_fifty_times(
    lossy: tuple[LossyProxy, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, when the client asks again by itself; or until it gives up, and the lane starts anew."""
    proxy, bench = lossy
    monkeypatch.setattr(kafka_module, "_TRANSACTION_CALL", timedelta(seconds=1))
    reasons: list[str] = []

    def better_times(reason: str) -> None:
        reasons.append(reason)
        proxy.to_lose = 0

    lane = bench.lane(pause=better_times)
    expected = []
    for number in range(50):
        values = [f"{number}-{record}" for record in range(3)]
        expected += values
        proxy.to_lose = 1 if number % 5 else 1000
        lane.publish(bench.stage(number, *values))
        proxy.to_lose = 0
    lane.close()

    assert bench.values() == expected
    assert proxy.lost >= 50
    assert len(reasons) >= 10


@pytest.mark.long(minutes=1.3)
@pytest.mark.parametrize("semantic", [AtLeastOnce, ExactlyOnce])
def test_lost_packets_delay_a_lane_for_seconds(
    lossy: tuple[LossyProxy, Bench], monkeypatch: pytest.MonkeyPatch, semantic: type[AtLeastOnce]
) -> None:
    """Connections stay open and silent: the lane makes others, and publishes each record once when these are answered."""
    proxy, bench = lossy
    monkeypatch.setattr(kafka_module, "_ANSWER", timedelta(seconds=1))
    monkeypatch.setattr(kafka_module, "_TRANSACTION_CALL", timedelta(seconds=2))

    def confirmed() -> AtLeastOnce:
        return AtLeastOnce(
            bench.egress, lambda _: False, Patience(bench.egress), Refusals(bench.egress)
        )

    connect = bench.cluster if semantic is ExactlyOnce else confirmed
    lane = bench.lane(connect, pause=lambda _: time.sleep(0.1))
    lane.publish(bench.stage(0, "a", "b"))
    before = proxy.connections
    with ThreadPoolExecutor() as threads:
        proxy.swallow()
        publishing = threads.submit(lane.publish, bench.stage(1, *"cdefg"))
        wait(lambda: proxy.connections > before)
        proxy.mend()
        publishing.result(timeout=SECONDS)
    lane.close()

    assert bench.values() == [*"abcdefg"]


RACER = """\
import sys
import threading
import uuid
from datetime import timedelta
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.former_queries import add_former_query, former_queries
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.release.retention import Retention
from statefun.runtime.settings import Settings
from statefun.sdk.errors import CheckpointError
from statefun.module.loader import parse_module

for line in sys.stdin:
    checkpoint, module = line.rstrip("\\n").split("\\t")
    folder = Folder.at(checkpoint)
    module = parse_module(module.replace("|", "\\n"))
    settings = Settings.resolve({}, None, checkpoint=checkpoint)
    try:
        with checkpoint_lock(folder, timedelta(0)):
            newest = CommitLog(folder).newest()
            leftovers = Outbox(folder).recover(newest)
            run = uuid.uuid4().hex
            factories = KafkaLaneFactory.all_of(
                module.egresses, folder, settings.kafka_timeout, run
            )
            offsets = GroupOffsets((), (), CommitLog(folder))
            publisher = Publisher(run, factories, settings, offsets, Retention(folder))
            publisher.start(leftovers)
            publisher.drain(newest, threading.Event())
            publisher.stop()
            print("published", publisher.records, flush=True)
    except CheckpointError as error:
        print("refused", "is in use by process" in error.message, flush=True)
"""


@pytest.mark.long(minutes=0.6)
@pytest.mark.parametrize("semantic", ["at-least-once", "exactly-once"])
def test_two_drivers_race_for_a_checkpoint(
    kafka: KafkaHarness, tmp_path: Path, semantic: str
) -> None:
    """Of two that start at once, fifty times, one publishes and the other one is refused."""
    out = kafka.topic("out")
    egress = KafkaEgress(
        TypeName("test", "out"), kafka.address, NOWHERE, DeliverySemantic(semantic)
    )
    module = kafka.module({"in": ["t/f"]}, semantic=semantic).replace("\n", "|")
    command = [sys.executable, "-c", RACER]
    answers: list[str] = []
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
                )
            )
            for _ in range(2)
        ]
        for number in range(50):
            bench = Bench(kafka, out, Folder.at(tmp_path / f"{number}"), str(uuid.uuid4()), egress)
            bench.stage(0, f"{number}")
            metadata = json.dumps({"id": bench.query_id}).encode()
            bench.folder.write("metadata", metadata)
            bench.folder.child("offsets").write("0", b'v1\n{}\n{}\n{"batch": -1, "tick": -1}')
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{bench.folder.location}\t{module}\n")
            for racer in racers:
                assert racer.stdout is not None
                answers.append(racer.stdout.readline().strip())

    assert answers.count("published 1") == 50
    assert set(answers) <= {"published 1", "published 0", "refused True"}
    assert sorted(bench.values(), key=int) == [f"{number}" for number in range(50)]
