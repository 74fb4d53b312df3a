# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from harness import KafkaHarness

from statefun.module.loader import parse_module
from statefun.module.model import KafkaIngress
from statefun.runtime.ingress import starting_offsets as startup
from statefun.runtime.ingress.starting_offsets import (
    check_topics,
    client_properties,
    later_starts,
    starting_offsets,
)
from statefun.runtime.kafka.cluster_offsets import dated_offsets
from statefun.sdk.errors import KafkaError, TopicError

pytestmark = pytest.mark.broker

TIMEOUT = timedelta(seconds=30)
EARLIEST, LATEST = -2, -1
RESETS = pytest.mark.parametrize(
    ("reset", "expected"), [("earliest", EARLIEST), ("latest", LATEST)]
)
DATED = "{type: date, date: '2024-02-01 05:15:00.250 +0100'}"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def ingress(
    kafka: KafkaHarness, topics: Iterable[str], start: str, *, group: str, reset: str = "latest"
) -> KafkaIngress:
    """Return an ingress on ``topics`` as a module file declares it."""
    targets = {topic: ["test.fns/one"] for topic in topics}
    module = kafka.module(targets, start=start, group=group, reset=reset)
    return parse_module(module).ingresses[0]


def offsets(declared: KafkaIngress) -> dict[str, dict[str, int]]:
    """Return where ``declared`` starts, by topic and partition."""
    return starting_offsets(declared, check_topics(declared, TIMEOUT), TIMEOUT)


def fill(kafka: KafkaHarness, topic: str, counts: Sequence[int]) -> None:
    """Write that many records to each partition."""
    for partition, count in enumerate(counts):
        kafka.send(topic, [("key", "value")] * count, partition=partition)


def send_dated(kafka: KafkaHarness, topic: str, ages: Sequence[int], partition: int) -> None:
    """Write records of these times, in milliseconds after ``DATED``."""
    date = datetime(2024, 2, 1, 4, 15, 0, 250_000, tzinfo=timezone.utc)
    millis = (date - EPOCH) // timedelta(milliseconds=1)
    producer = Producer({"bootstrap.servers": kafka.address})
    for age in ages:
        producer.produce(topic, "v", "k", partition=partition, timestamp=millis + age)
    assert producer.flush(30) == 0


def commit(kafka: KafkaHarness, group: str, topic: str, committed: dict[int, int]) -> None:
    """Commit offsets of a group, by partition."""
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": group})
    asked = [TopicPartition(topic, number, offset) for number, offset in committed.items()]
    consumer.commit(offsets=asked, asynchronous=False)
    consumer.close()


def delete_before(kafka: KafkaHarness, topic: str, offset: int) -> None:
    """Delete the records of a partition below an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for result in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        result.result(30)


@pytest.mark.parametrize(("kind", "expected"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_spark_resolves_earliest_and_latest(kafka: KafkaHarness, kind: str, expected: int) -> None:
    """Every partition of every topic has Spark's number, regardless of the group's offsets."""
    one, two = kafka.topic("one", partitions=2), kafka.topic("two")
    fill(kafka, one, [3, 3])
    commit(kafka, one, one, {0: 1})

    found = offsets(ingress(kafka, [one, two], f"{{type: {kind}}}", group=one))

    assert found == {one: {"0": expected, "1": expected}, two: {"0": expected}}


@RESETS
def test_group_offsets_or_else_the_reset_position(
    kafka: KafkaHarness, reset: str, expected: int
) -> None:
    """Committed offsets in range count; for missing offsets, and those after the end, the reset position does."""
    topic = kafka.topic("users", partitions=5)
    fill(kafka, topic, [3, 3, 3, 3, 0])
    commit(kafka, topic, topic, {0: 0, 1: 3, 2: 4, 4: 0})

    found = offsets(ingress(kafka, [topic], "{type: group-offsets}", group=topic, reset=reset))

    assert found == {topic: {"0": 0, "1": 3, "2": expected, "3": expected, "4": 0}}


@RESETS
@pytest.mark.parametrize(
    "start", ["{type: group-offsets}", "{type: specific-offsets, offsets: [{TOPIC/0: 1}]}"]
)
def test_offsets_of_deleted_records_are_out_of_range(
    kafka: KafkaHarness, start: str, reset: str, expected: int
) -> None:
    """An offset before the first existing record counts as missing."""
    topic = kafka.topic("users")
    fill(kafka, topic, [4])
    commit(kafka, topic, topic, {0: 1})
    delete_before(kafka, topic, 2)

    found = offsets(
        ingress(kafka, [topic], start.replace("TOPIC", topic), group=topic, reset=reset)
    )

    assert found == {topic: {"0": expected}}


def test_the_first_existing_record_is_in_range(kafka: KafkaHarness) -> None:
    """A group whose offset is exactly that of the first record loses nothing."""
    topic = kafka.topic("users")
    fill(kafka, topic, [4])
    commit(kafka, topic, topic, {0: 2})
    delete_before(kafka, topic, 2)

    found = offsets(ingress(kafka, [topic], "{type: group-offsets}", group=topic))

    assert found == {topic: {"0": 2}}


def test_a_start_after_the_beginning_of_an_open_transaction_is_an_error(
    kafka: KafkaHarness,
) -> None:
    """Readers of uncommitted records can start there; others have to wait for the transaction's end."""
    topic = kafka.topic("users")
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, "value", "key")
    producer.flush(30)
    commit(kafka, topic, topic, {0: 2})
    by_group = ingress(kafka, [topic], "{type: group-offsets}", group=topic)
    uncommitted = attrs.evolve(by_group, properties={"isolation.level": "read_uncommitted"})

    with pytest.raises(KafkaError) as open_:
        offsets(by_group)
    anyway = offsets(uncommitted)
    by_date = offsets(
        ingress(kafka, [topic], "{type: date, date: '2020-02-01T04:15:00Z'}", group=topic)
    )
    producer.abort_transaction(30)

    assert open_.value.message == (
        f"ingress test/in: the starting offset is 2 in topic {topic}, partition 0, and a "
        "transaction is open since offset 0; start again when the transaction has ended, or set the property "
        "isolation.level to read_uncommitted"
    )
    assert anyway == {topic: {"0": 2}}
    assert by_date == {topic: {"0": 0}}
    assert offsets(by_group) == {topic: {"0": 2}}


@RESETS
def test_specific_offsets_or_group_offsets_or_else_the_reset_position(
    kafka: KafkaHarness, reset: str, expected: int
) -> None:
    """Listed partitions start at their offsets, others at the group's offsets."""
    topic, other = kafka.topic("users", partitions=4), kafka.topic("other")
    fill(kafka, topic, [3, 3, 3, 3])
    commit(kafka, topic, topic, {0: 3, 1: 2})
    listed = f"{{type: specific-offsets, offsets: [{{{topic}/0: 1}}, {{{topic}/3: 99}}]}}"

    found = offsets(ingress(kafka, [topic, other], listed, group=topic, reset=reset))

    assert found == {
        topic: {"0": 1, "1": 2, "2": expected, "3": expected},
        other: {"0": expected},
    }


def test_specific_offsets_of_other_partitions_are_left_out(
    kafka: KafkaHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark gets offsets of the ingress's partitions only; a warning lists the others."""
    topic = kafka.topic("users")
    fill(kafka, topic, [3])
    listed = (
        f"{{type: specific-offsets, offsets: [{{{topic}/0: 1}}, {{{topic}/1: 1}}, {{x/0: 1}}]}}"
    )

    found = offsets(ingress(kafka, [topic], listed, group=topic))

    assert found == {topic: {"0": 1}}
    strangers = f"{topic}/1, x/0"
    assert caplog.messages == [
        (
            f"ingress test/in: its startupPosition lists {strangers}, which the ingress does not read; "
            "these offsets have no effect"
        )
    ]


def test_without_a_group_nothing_is_committed(kafka: KafkaHarness) -> None:
    """The placeholder group of the client has no offsets that count."""
    topic = kafka.topic("users", partitions=2)
    fill(kafka, topic, [3, 3])
    listed = f"{{type: specific-offsets, offsets: [{{{topic}/0: 1}}]}}"
    module = kafka.module({topic: ["test.fns/one"]}, start=listed, group="GROUP")
    declared = parse_module(module.replace("  consumerGroupId: GROUP\n", "")).ingresses[0]
    commit(kafka, client_properties(declared)["group.id"], topic, {0: 2, 1: 2})

    found = offsets(declared)

    assert declared.consumer_group_id is None
    assert found == {topic: {"0": 1, "1": LATEST}}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_date_or_else_the_end(kafka: KafkaHarness, reset: str) -> None:
    """To the millisecond, the first record at or after the date counts, else the present end, which later records do not move."""
    topic = kafka.topic("users", partitions=4)
    for partition, ages in {0: [-5000, -1, 0, 1], 1: [1, 2], 2: [-2, -1], 3: []}.items():
        send_dated(kafka, topic, ages, partition)
    commit(kafka, topic, topic, {0: 1, 2: 1})
    declared = ingress(kafka, [topic], DATED, group=topic, reset=reset)

    found = offsets(declared)
    send_dated(kafka, topic, [3], 2)
    send_dated(kafka, topic, [3], 3)

    assert found == {topic: {"0": 2, "1": 0, "2": 2, "3": 0}}


def test_a_date_whose_first_records_are_deleted_during_the_look(
    kafka: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading begins at the first record that is left, and leaves out no other one."""
    topic = kafka.topic("users")
    send_dated(kafka, topic, [1, 2, 3], 0)

    def late(*args: Any, **kwargs: Any) -> dict[tuple[str, int], int]:
        found = dated_offsets(*args, **kwargs)
        delete_before(kafka, topic, 1)
        return found

    monkeypatch.setattr(startup, "dated_offsets", late)

    assert offsets(ingress(kafka, [topic], DATED, group=topic)) == {topic: {"0": EARLIEST}}


def test_topics_have_their_partitions(kafka: KafkaHarness) -> None:
    """The partitions of every topic of the ingress are looked up."""
    one, two = kafka.topic("one", partitions=3), kafka.topic("two")

    found = check_topics(ingress(kafka, [one, two], "{type: latest}", group=one), TIMEOUT)

    assert found == {one: [0, 1, 2], two: [0]}


def test_a_missing_topic_is_named(kafka: KafkaHarness) -> None:
    """The error says which ingress needs which topic."""
    one = kafka.topic("one")

    with pytest.raises(TopicError) as caught:
        check_topics(ingress(kafka, [one, "nowhere"], "{type: latest}", group=one), TIMEOUT)

    assert caught.value.message.startswith(
        f"ingress test/in: topic nowhere does not exist at {kafka.address}; create it first"
    )


@pytest.mark.parametrize("start", ["group-offsets", "date, date: '2020-02-01T04:15:00Z'"])
def test_a_cluster_that_returns_no_offsets_is_an_error(kafka: KafkaHarness, start: str) -> None:
    """A cluster that no longer answers is not mistaken for one without offsets."""
    nowhere = "127.0.0.1:1"
    module = kafka.module({"users": ["test.fns/one"]}, start=f"{{type: {start}}}")
    declared = parse_module(module.replace(kafka.address, nowhere)).ingresses[0]

    with pytest.raises(KafkaError) as caught:
        starting_offsets(declared, {"users": [0]}, timedelta(milliseconds=300))

    assert caught.value.message.startswith(
        f"ingress test/in: the offsets to start from could not be read from {nowhere}: "
    )


def test_an_error_of_one_partition_is_an_error(
    kafka: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of one partition is not mistaken for "nothing committed"."""

    class Refusing(Consumer):
        def committed(
            self, partitions: list[TopicPartition], timeout: float = -1
        ) -> list[TopicPartition]:
            return [Refused(p.topic, p.partition) for p in partitions]

    class Refused(TopicPartition):
        error = ClientError(ClientError.GROUP_AUTHORIZATION_FAILED)

    declared = ingress(kafka, ["users"], "{type: group-offsets}", group="tests")
    monkeypatch.setattr(startup, "Consumer", Refusing)

    with pytest.raises(KafkaError) as caught:
        starting_offsets(declared, {"users": [0]}, TIMEOUT)

    assert caught.value.message == (
        f"ingress test/in: the offsets to start from could not be read from {kafka.address}: "
        "Broker: Group authorization failed"
    )
    assert isinstance(caught.value.__cause__, KafkaException)


def test_clients_neither_join_nor_commit_by_themselves(kafka: KafkaHarness) -> None:
    """Named keys take precedence over properties; all other properties of the user are kept."""
    module = kafka.module({"users": ["test.fns/one"]}, group="mine").replace(
        "  topics:",
        "  properties:\n    - isolation.level: read_committed\n    - client.id: me\n  topics:",
    )

    properties = client_properties(parse_module(module).ingresses[0])

    assert properties == {
        "bootstrap.servers": kafka.address,
        "group.id": "mine",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "client.id": "me",
    }


def test_only_topics_that_are_newly_declared_begin_at_the_startup_position(
    kafka: KafkaHarness,
) -> None:
    """Others may have been created while no run was there, and were promised to be read."""
    names = {name: kafka.topic(name) for name in ("read", "late", "new")}
    for topic in names.values():
        kafka.send(topic, [("k", "v")])
    declared = ingress(kafka, [*names.values()], "{type: latest}", group="later")
    read = {names["read"]: {"0": 1}}
    partitions = {topic: [0] for topic in names.values()}

    def starts(*former: str) -> dict[str, dict[str, int]]:
        return later_starts(declared, partitions, read, former, TIMEOUT)

    assert starts(names["read"], names["late"]) == {names["new"]: {"0": 1}}
    assert starts(names["read"], r".*\.(late|new)") == {}
    assert starts(names["read"], r".*\.late", r"(?i).*\.NEW") == {}  # each has its own flags
    other = names["new"].replace("_", ".")  # a name, not a pattern
    assert starts(names["read"], names["late"], other) == {names["new"]: {"0": 1}}
    assert later_starts(declared, partitions, None, None, TIMEOUT) == {
        topic: {"0": 1} for topic in names.values()
    }
