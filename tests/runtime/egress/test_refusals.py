# SPDX-License-Identifier: Apache-2.0
"""Records that a real broker refuses for good: they do not stop the others."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from harness import KafkaHarness, Received, wait

from statefun import KafkaError, TopicError
from statefun.dev import EmbeddedKafka
from statefun.engine.effects import EffectRows
from statefun.engine.letters import DeadLetterTopic
from statefun.engine.sinks import EgressRecord
from statefun.inspect.unpublished import skip
from statefun.module.location import Location
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, Staged, effect_stream
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane import UncertainError, UndeliveredError
from statefun.runtime.egress.lane_set import UntilStopped
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.producers import ExactlyOnce
from statefun.runtime.egress.refusals import Refusals, Refused, numbered
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.runtime.settings import Settings
from statefun.sdk.address import TypeName
from statefun.sdk.failure import OnFailure

pytestmark = [pytest.mark.broker, pytest.mark.takes(minutes=4.8)]

NOWHERE = Location("module.yaml", 1, 1)
AT_LEAST_ONCE, EXACTLY_ONCE = DeliverySemantic.AT_LEAST_ONCE, DeliverySemantic.EXACTLY_ONCE
SMALL, SECRET, COMPACTED = "small", "secret", "compacted"
REFUSED = {
    "too large": (EgressRecord(SMALL, b"k", b"x" * 5000, None), "SF500"),
    "invalid name": (EgressRecord("no such/topic!", b"k", b"x", None), "SF500"),
    "unknown topic": (EgressRecord("nowhere", b"k", b"x", None), "SF501"),
    "unknown partition": (EgressRecord(SMALL, b"k", b"x", None, 7), "SF501"),
    "not allowed": (EgressRecord(SECRET, b"k", b"x", None), "SF500"),
    "invalid record": (EgressRecord(COMPACTED, None, b"x", [("h", b"1")]), "SF500"),
}
LARGE = EgressRecord(SMALL, b"k", b"x" * 2_000_000, None)
"""Too large for a dead letter as well."""


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedKafka]:
    """Run a broker that refuses things."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedKafka(config=config) as broker:
        broker.create_topic(SMALL, config={"max.message.bytes": "2000"})
        broker.create_topic(COMPACTED, config={"cleanup.policy": "compact"})
        broker.create_topic(SECRET)
        rule = AclBinding(
            ResourceType.TOPIC,
            SECRET,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.create_acls([rule]).values():
            future.result(30)
        yield broker


@attrs.define
class Bench:
    """An application's checkpoint, its egress, and the topics of one test."""

    kafka: KafkaHarness
    folder: Folder
    egress: KafkaEgress
    letters: KafkaEgress | None
    out: str
    query_id: str = attrs.field(factory=lambda: str(uuid.uuid4()))
    runs: set[str] = attrs.field(factory=set)

    def stage(self, number: int, records: Sequence[EgressRecord]) -> Staged:
        """Stage and commit a batch."""
        rows = EffectRows()
        for record in records:
            rows.append(record)
        segment = Segment(
            egress={
                str(self.egress.id): effect_stream(
                    arrow_stream(rows.take(), EGRESS_SCHEMA), len(records)
                )
            }
        )
        outbox = Outbox(self.folder)
        outbox.stage(Manifest(batch=number, query_id=self.query_id, segments=[segment], lanes=1))
        self.folder.child("commits").write(str(number), b"v1")
        staged = outbox.staged(number)
        assert staged is not None
        return staged

    def publish(self, *batches: Staged, stop: threading.Event | None = None) -> int:
        """Publish batches as a new run; return how many records were refused."""
        run, stopping = uuid.uuid4().hex, stop or threading.Event()
        factory = KafkaLaneFactory(
            self.egress, self.folder, timedelta(seconds=10), run, dead_letters=self.letters
        )
        lanes = factory.driver_lanes(UntilStopped(stopping))
        try:
            if factory.needs_progress and self.runs:
                lanes.open(self.query_id, 1, self.runs)
                lanes.claim()
            self.runs.add(run)
            return sum(each.refused for each in lanes.publish(batches))
        finally:
            lanes.close()

    def values(self, *topics: str) -> list[str]:
        """Read the records that this test has published, topic by topic."""
        received = [each for topic in topics or [self.out] for each in self.kafka.receive(topic)]
        return [record.value for record in received if record.headers.get("test") == self.out]

    def dead(self) -> list[Received]:
        """Read the dead letters."""
        assert self.letters is not None
        assert self.letters.dead_letter_topic is not None
        return self.kafka.receive(self.letters.dead_letter_topic)

    def record(self, value: str, topic: str = "") -> EgressRecord:
        """Return a record that is as it should be."""
        return EgressRecord(topic or self.out, b"k", value.encode(), [("test", self.out.encode())])


@pytest.fixture
def bench(strict: EmbeddedKafka, request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Return a bench that writes dead letters to a topic of its egress."""
    kafka = KafkaHarness(strict, uuid.uuid4().hex[:8])
    semantic = request.param if hasattr(request, "param") else EXACTLY_ONCE
    egress = KafkaEgress(
        TypeName("t", "out"),
        kafka.address,
        NOWHERE,
        semantic,
        dead_letter_topic=kafka.topic("dead"),
    )
    return Bench(kafka, Folder.at(tmp_path / "checkpoint"), egress, egress, kafka.topic("out"))


both = pytest.mark.parametrize("bench", [AT_LEAST_ONCE, EXACTLY_ONCE], indirect=True)
in_order: dict[DeliverySemantic, Callable[[list[str]], list[str]]] = {
    AT_LEAST_ONCE: lambda values: list(dict.fromkeys(values)),
    EXACTLY_ONCE: list,
}
"""Drops repeated values of a topic if the egress is at-least-once."""


@both
@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_record_becomes_a_dead_letter(bench: Bench, kind: str) -> None:
    """All other records are published in order, also those of its batch; a restart changes nothing."""
    poison, code = REFUSED[kind]
    topics = {bench.out, poison.topic} & bench.kafka.broker_topics() - {SECRET}
    good = [bench.record(f"{topic} {n}", topic) for n in range(40) for topic in sorted(topics)]
    first = bench.stage(0, [*good[:30], poison, *good[30:]])
    second = bench.stage(1, [bench.record("next")])

    refused = bench.publish(first)
    again = bench.publish(first, second)

    once = in_order[bench.egress.delivery_semantic]
    for topic in topics:
        expected = [f"{topic} {n}" for n in range(40)] + ["next"] * (topic == bench.out)
        assert once(bench.values(topic)) == expected
    exactly = bench.egress.delivery_semantic is EXACTLY_ONCE
    assert (refused, again) == (1, 0 if exactly else 1)
    letters = bench.dead()
    assert len(letters) == (1 if exactly else 2)
    letter = letters[0]
    assert (letter.key, letter.value) == (
        "k" if poison.key else None,
        (poison.value or b"").decode(),
    )
    names = ("error-code", "egress", "topic", "target")
    assert [letter.headers.get(f"statefun-{name}") for name in names] == [
        code, "t/out", poison.topic, None,
    ]  # fmt: skip
    assert letter.headers.get("h") == (poison.headers and "1")


@both
def test_many_are_refused_at_once(bench: Bench) -> None:
    """Each record for a missing topic becomes one letter, and the others are published."""
    records = [bench.record(f"{n}", bench.out if n % 2 else "nowhere") for n in range(1000)]

    refused = bench.publish(bench.stage(0, records))

    assert refused == 500
    assert bench.values() == [f"{n}" for n in range(1, 1000, 2)]
    assert [letter.value for letter in bench.dead()] == [f"{n}" for n in range(0, 1000, 2)]


@both
def test_several_of_a_batch_are_to_blame(bench: Bench) -> None:
    """A broker then refuses the good records because of the others; all good ones are published."""
    poison = REFUSED["invalid record"][0]
    good = [bench.record(f"{n}", topic) for n in range(20) for topic in (bench.out, COMPACTED)]
    before = len(bench.values(COMPACTED))

    refused = bench.publish(bench.stage(0, [*good[:20], poison, *good[20:30], poison, *good[30:]]))

    once = in_order[bench.egress.delivery_semantic]
    assert refused == 2
    assert once(bench.values()) == [f"{n}" for n in range(20)]
    assert once(bench.values(COMPACTED)[before:]) == [f"{n}" for n in range(20)]
    assert [letter.value for letter in bench.dead()] == ["x", "x"]


def test_a_letter_elsewhere_is_written_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds if the fate of the transaction without the record is unknown."""
    dead = bench.kafka.topic("elsewhere")
    bench.egress = attrs.evolve(bench.egress, dead_letter_topic=None)
    bench.letters = KafkaEgress(
        TypeName("t", "letters"), bench.kafka.address, NOWHERE, dead_letter_topic=dead
    )
    lost: list[Mapping[int, EgressRecord]] = []
    transact = ExactlyOnce._transact  # noqa: SLF001 - where transactions begin

    def lose(cluster: ExactlyOnce, records: Mapping[int, EgressRecord]) -> Sequence[Refused]:
        if len(records) == 3 and len(lost) < 2:  # without the refused one, with the marker
            lost.append(records)
            raise UncertainError("the answer got lost")
        return transact(cluster, records)

    monkeypatch.setattr(ExactlyOnce, "_transact", lose)
    poisons = [REFUSED["invalid name"][0], REFUSED["unknown topic"][0]]

    refused = bench.publish(
        bench.stage(0, [bench.record("a"), *poisons, bench.record("b")]),
        bench.stage(1, [poisons[0]]),
    )

    assert len(lost) == 2
    assert refused == 3
    assert bench.values() == ["a", "b"]
    assert len(bench.dead()) == 3


def test_each_record_is_published_or_refused(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each record counts once, whatever its fate; the last message has the final number."""
    poison = REFUSED["invalid name"][0]
    for number in range(2):
        bench.stage(number, [bench.record("a"), poison, bench.record("b")])
        feedback = b'{"batch": -1, "tick": -1}'
        bench.folder.child("offsets").write(str(number), b"v1\n{}\n" + feedback)
    folder = bench.folder
    settings = Settings.resolve({}, None, checkpoint=tmp_path / "checkpoint")
    publisher = Publisher(
        "run",
        KafkaLaneFactory.all_of([bench.egress], folder, settings.kafka_timeout, "run"),
        settings,
        GroupOffsets((), (), CommitLog(folder)),
        Retention(folder),
    )

    with caplog.at_level(logging.WARNING, "statefun.egress"):
        publisher.start(Outbox(folder).recover(1))
        publisher.drain(1, threading.Event())
        publisher.stop()

    assert (publisher.records, publisher.refused) == (4, 2)
    assert "2 records refused and made dead letters so far" in caplog.messages[-1]


@both
def test_a_refusal_may_come_while_a_large_batch_is_written(bench: Bench) -> None:
    """A transaction that fails meanwhile takes no more records, and gives the reason only later."""
    poison = REFUSED["too large"][0]
    records = [bench.record(f"{n}") for n in range(15_000)]

    refused = bench.publish(bench.stage(0, [poison, *records]))

    assert refused == 1
    values = in_order[bench.egress.delivery_semantic](bench.values())
    assert values == [f"{n}" for n in range(15_000)]
    assert [letter.value for letter in bench.dead()] == ["x" * 5000]


def test_only_records_of_an_aborted_transaction_are_refused_with_their_topic(bench: Bench) -> None:
    """Written records become no dead letters, even if their topic has begun to refuse."""
    reason = ClientError(ClientError.TOPIC_AUTHORIZATION_FAILED)
    first, second, other = (
        bench.record(name, topic) for name, topic in zip("abc", "ssu", strict=True)
    )
    refusals = Refusals(bench.egress)

    by_itself = refusals.certain([Refused(0, first, reason, alone=True)], {})
    with_others = refusals.certain(
        [Refused(0, first, reason, alone=True)], {0: first, 1: second, 2: other}
    )

    assert [each.record for each in by_itself] == [first]
    assert [each.record for each in with_others] == [first, second]


def test_a_chunk_that_is_tried_again_has_its_letters_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each record has one dead letter until the chunk is written; other lanes' records differ."""
    egress = KafkaEgress(TypeName("t", "out"), "localhost:9", NOWHERE)
    letters = DeadLetterTopic("t/letters", "dead", 1_000_000)
    written: list[bytes | None] = []
    refusals = Refusals(
        egress, letters, lambda records: written.extend(each.value for each in records)
    )
    reason = ClientError(ClientError.TOPIC_AUTHORIZATION_FAILED)

    def attempt(lane: int, *values: bytes) -> list[Refused]:
        records = [EgressRecord("t", b"k", value, None) for value in values]
        marker = Marker(7, len(records), b"digest", "", "")
        refused = [
            Refused(number, record, reason, alone=True)
            for number, record in numbered(records, marker).items()
        ]
        assert refusals.replace(refused, lane, marker) == {}
        return refused

    attempt(0, b"a")
    attempt(0, b"a", b"b")
    attempt(0, b"a", b"b")
    refused = attempt(1, b"c", b"d")
    again = [*written]
    with caplog.at_level(logging.WARNING, "statefun.egress"):
        refusals.settle(refused)
        refusals.settle(attempt(1, b"c", b"d"))
        refusals.counter.log_remaining()

    assert again == [b"a", b"b", b"c", b"d"]
    assert written == [*again, b"c", b"d"]
    assert [message.split(": ")[1][:9] for message in caplog.messages] == ["2 records", "4 records"]


@both
@pytest.mark.parametrize("kind", ["too large", "unknown topic", "not allowed"])
def test_the_policy_fail_stops_and_keeps_the_record(bench: Bench, kind: str) -> None:
    """It waits until the policy changes; then the records after it are published."""
    poison, code = REFUSED[kind]
    bench.egress = attrs.evolve(bench.egress, on_refused=OnFailure.FAIL)
    batch = bench.stage(0, [bench.record("a"), poison, bench.record("b")])

    for _ in range(2):
        with pytest.raises(
            KafkaError, match=r"egress t/out: topic .* stay in the outbox"
        ) as raised:
            bench.publish(batch)
        assert raised.value.code == code
    bench.egress = attrs.evolve(bench.egress, on_refused=OnFailure.SKIP)

    assert bench.publish(batch) == 1
    assert in_order[bench.egress.delivery_semantic](bench.values()) == ["a", "b"]
    assert bench.dead() == []


def test_a_record_that_no_dead_letter_can_hold_stops_the_application(bench: Bench) -> None:
    """The record stays in the outbox; the error names the remedy."""
    batch = bench.stage(0, [bench.record("a"), LARGE])

    with pytest.raises(KafkaError, match=r"dead letter would be larger than egress t/out takes"):
        bench.publish(batch)

    assert bench.values() == []


@both
def test_a_topic_that_is_created_later_gets_the_kept_records(bench: Bench) -> None:
    """The error names the topic; once it exists, the next start publishes all records."""
    bench.egress = attrs.evolve(bench.egress, on_refused=OnFailure.FAIL)
    later = f"{bench.out}.later"
    batch = bench.stage(0, [bench.record("a"), bench.record("b", later)])

    with pytest.raises(TopicError, match=rf"t/out: topic {later} does not exist at .*; create it;"):
        bench.publish(batch)
    bench.kafka.broker.create_topic(later)

    assert bench.publish(batch) == 0
    assert bench.values(later) == ["b"]


@both
def test_dead_letters_may_go_elsewhere(bench: Bench) -> None:
    """To the topic of another egress: they are written before the record counts as published."""
    dead = bench.kafka.topic("elsewhere")
    bench.egress = attrs.evolve(bench.egress, dead_letter_topic=None)
    bench.letters = KafkaEgress(
        TypeName("t", "letters"), bench.kafka.address, NOWHERE, dead_letter_topic=dead
    )
    poison = REFUSED["too large"][0]

    refused = bench.publish(bench.stage(0, [bench.record("a"), poison, bench.record("b")]))

    assert refused == 1
    assert in_order[bench.egress.delivery_semantic](bench.values()) == ["a", "b"]
    assert [letter.value for letter in bench.dead()] == ["x" * 5000]


@both
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_dead_letter_that_is_refused_stops(bench: Bench, elsewhere: bool) -> None:
    """No other topic is left for it; no record is lost, and no letter has a letter."""
    missing = f"{bench.out}.missing"
    bench.letters = attrs.evolve(bench.egress, dead_letter_topic=missing)
    if elsewhere:
        bench.letters = attrs.evolve(bench.letters, id=TypeName("t", "letters"))
        bench.egress = attrs.evolve(bench.egress, dead_letter_topic=None)
    batch = bench.stage(0, [bench.record("a"), REFUSED["invalid name"][0], bench.record("b")])

    with pytest.raises(TopicError, match=rf"topic {missing} does not exist at .* stay in the out"):
        bench.publish(batch)
    bench.kafka.broker.create_topic(missing)

    assert bench.publish(batch) == 1
    assert in_order[bench.egress.delivery_semantic](bench.values()) == ["a", "b"]
    assert [letter.value for letter in bench.dead()] == ["x"]


@pytest.mark.parametrize("bench", [DeliverySemantic.NONE], indirect=True)
@pytest.mark.parametrize("kind", REFUSED)
def test_an_egress_that_promises_nothing_goes_on(
    bench: Bench, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused records are lost, and counted; the others are published."""
    records = [bench.record("a"), REFUSED[kind][0], bench.record("b")]

    with caplog.at_level(logging.WARNING, "statefun.egress"):
        assert bench.publish(bench.stage(0, records)) == 0

    assert bench.values() == ["a", "b"]
    assert bench.dead() == []
    if kind != "unknown topic":  # of which an application that ends does not hear in time
        assert "1 records lost so far: " in caplog.text


@both
def test_an_unreachable_cluster_is_not_a_missing_topic(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer no record is refused: the lane waits, and logs that."""
    bench.egress = attrs.evolve(bench.egress, address="127.0.0.1:9")
    batch, stop = bench.stage(0, [bench.record("a")]), threading.Event()
    if bench.egress.delivery_semantic is EXACTLY_ONCE:
        with pytest.raises(KafkaError, match=r"no Kafka broker answered at 127.0.0.1:9"):
            bench.publish(batch)
        return
    errors: list[BaseException] = []

    def publish() -> None:
        try:
            bench.publish(batch, stop=stop)
        except UndeliveredError as error:
            errors.append(error)

    with caplog.at_level(logging.WARNING, "statefun.egress"):
        thread = threading.Thread(target=publish)
        thread.start()
        wait(lambda: "egress t/out: 127.0.0.1:9 does not answer; the records stay" in caplog.text)
        stop.set()
        thread.join()

    assert len(errors) == 1


@both
def test_skipped_records_let_the_others_through(bench: Bench, tmp_path: Path) -> None:
    """Records of a partly published batch are not published twice."""
    bench.egress = attrs.evolve(bench.egress, on_refused=OnFailure.FAIL)
    records = [bench.record(f"{n}") for n in range(60_000)]
    records[55_000] = REFUSED["unknown topic"][0]
    batch = bench.stage(0, records)
    with pytest.raises(TopicError, match="stay in the outbox"):
        bench.publish(batch)
    published = len(bench.values())

    skip(bench.folder, 0, "t/out", [55_000, 55_001, 7], tmp_path / "saved")
    staged = Outbox(bench.folder).staged(0)
    assert staged is not None
    refused = bench.publish(staged)

    assert refused == 0
    exactly = bench.egress.delivery_semantic is EXACTLY_ONCE
    assert published == (50_000 if exactly else 59_999)
    missing = {55_000, 55_001} if exactly else {55_000}
    left = [f"{n}" for n in range(60_000) if n not in missing]
    assert in_order[bench.egress.delivery_semantic](bench.values()) == left
    saved = [json.loads(line) for line in (tmp_path / "saved").read_text().splitlines()]
    assert [(line["record"], line["topic"]) for line in saved] == [
        (7, bench.out), (55_000, "nowhere"), (55_001, bench.out),
    ]  # fmt: skip
