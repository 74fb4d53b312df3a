# SPDX-License-Identifier: Apache-2.0
"""Questions about offsets to a real broker, whose leaders change."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions
from harness import KafkaHarness, wait
from patience import SECONDS

from statefun.dev import EmbeddedKafka
from statefun.dev.dev_topics import wait_for_leaders
from statefun.runtime.kafka import cluster_offsets
from statefun.runtime.kafka.client import reason_of
from statefun.runtime.kafka.cluster_offsets import committed_offsets, dated_offsets, watermarks

pytestmark = pytest.mark.broker
LONG = timedelta(seconds=30)


def test_a_cluster_that_has_just_started_is_asked_again() -> None:
    """At first it may not know yet which broker coordinates a group."""
    for number in range(2):
        with EmbeddedKafka() as broker:
            broker.create_topic("users")
            settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"new-{number}"}
            consumer = Consumer(settings)
            (found,) = committed_offsets(consumer, [TopicPartition("users", 0)], LONG)
            assert found.offset < 0
            consumer.close()


def test_offsets_of_an_open_transaction_are_waited_for(kafka: KafkaHarness) -> None:
    """The older offset would repeat records if the transaction is committed."""
    topic = kafka.topic("users")
    kafka.send(topic, [("k", "v")] * 5)
    settings = {"bootstrap.servers": kafka.address, "group.id": topic}
    member = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    wait(lambda: member.poll(1) is not None)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    offsets = [TopicPartition(topic, 0, 3)]
    producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)
    reader = Consumer({**settings, "isolation.level": "read_committed"})

    with pytest.raises(KafkaException, match="is a transaction with offsets of the group open"):
        committed_offsets(reader, [TopicPartition(topic, 0)], timedelta(seconds=2))
    producer.commit_transaction(30)
    (found,) = committed_offsets(reader, [TopicPartition(topic, 0)], LONG)
    reader.close()
    member.close()

    assert found.offset == 3


def test_offsets_of_many_partitions_take_one_request(kafka: KafkaHarness) -> None:
    """There is one request for each kind of offset; read-committed readers stop before an open transaction."""
    topic = kafka.topic("users", 50)
    kafka.send(topic, [("k", "v")] * 3, partition=7)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "v", partition=7)
    producer.flush(30)
    questions = []
    answers: list[Future[Any]] = []

    class Counting(AdminClient):
        def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
            assert all(answer.done() for answer in answers)  # or librdkafka might crash
            questions.append(len(args[0]))
            found = super().list_offsets(*args, **kwargs)
            answers.extend(found.values())
            return found

    every = [(topic, number) for number in range(50)]
    # Until the broker knows that it leads the partitions, it may be asked again.
    watermarks(AdminClient({"bootstrap.servers": kafka.address}), every, LONG, committed=True)
    admin = Counting({"bootstrap.servers": kafka.address})
    readable, there = (
        watermarks(admin, every, LONG, committed=committed) for committed in (True, False)
    )
    producer.abort_transaction(30)

    assert questions == [50] * 4
    assert watermarks(admin, [], LONG, committed=True) == {}
    empty = dict.fromkeys(every, (0, 0))
    assert readable == {**empty, (topic, 7): (0, 3)}
    assert there == {**empty, (topic, 7): (0, 4)}
    with pytest.raises(KafkaException):
        watermarks(admin, [(topic, 50)], LONG, committed=True)


def test_a_partition_that_moves_is_asked_for_again(kafka: KafkaHarness) -> None:
    """A broker may still have to learn that it leads the partition; all other errors are final."""
    topic = kafka.topic("users")
    kafka.send(topic, [("k", "v")])
    passing, forbidden = (
        [
            ClientError.NOT_LEADER_FOR_PARTITION,
            ClientError.OFFSET_NOT_AVAILABLE,
            ClientError.UNKNOWN_TOPIC_OR_PART,
        ],
        ClientError.TOPIC_AUTHORIZATION_FAILED,
    )
    codes = iter([*passing, None, None, forbidden])

    class Refusing(AdminClient):
        def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
            found, code = super().list_offsets(*args, **kwargs), next(codes)
            if code is None:
                return found
            refused: Future[Any] = Future()
            refused.set_exception(KafkaException(ClientError(code)))
            return dict.fromkeys(found, refused)

    admin = Refusing({"bootstrap.servers": kafka.address})

    assert watermarks(admin, [(topic, 0)], LONG, committed=True) == {(topic, 0): (0, 1)}
    with pytest.raises(KafkaException, match=f"{topic}/0: Broker: Topic authorization failed"):
        watermarks(admin, [(topic, 0)], LONG, committed=True)


class Answering(AdminClient):
    """A client whose questions about offsets get given error codes as answers, and none at the end."""

    def __init__(self, settings: dict[str, Any], codes: Iterable[int | None]) -> None:
        self.looks: list[float] = []
        """How long each question for metadata may take, in seconds."""
        self._codes = iter(codes)
        super().__init__(settings)

    def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """Answer."""
        found, code = super().list_offsets(*args, **kwargs), next(self._codes)
        if code is not None:
            for answer in found.values():
                answer.result()
            refused: Future[Any] = Future()
            refused.set_exception(KafkaException(ClientError(code)))
            found = dict.fromkeys(found, refused)
        return found

    def list_topics(self, *args: Any, timeout: float = -1, **kwargs: Any) -> Any:
        """Note the limit, and ask."""
        self.looks.append(timeout)
        return super().list_topics(*args, timeout=timeout, **kwargs)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of the questions, which goes on when they wait."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    stand_in = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(cluster_offsets, "time", stand_in)
    return now


@pytest.mark.parametrize("seconds", [1, 5, 15, 30, 60, 3600])
def test_a_slow_answer_has_the_whole_time(clock: list[float], seconds: int) -> None:
    """The cluster is asked again soon, as another broker may lead a partition, and has ever more time to answer."""
    limits: list[float] = []

    class Silent:
        """A client of a cluster that answers to nothing but the question for its metadata, and slowly to that."""

        def list_offsets(self, places: Any, *, request_timeout: float, **_: Any) -> Any:
            limits.append(request_timeout)
            clock[0] += request_timeout
            silent: Future[Any] = Future()
            silent.set_result(SimpleNamespace(offset=OFFSET_INVALID))
            return dict.fromkeys(places, silent)

        def list_topics(self, *, timeout: float) -> Any:
            clock[0] += min(timeout, 0.05)
            return SimpleNamespace(topics={"users": SimpleNamespace(partitions={0: None})})

    with pytest.raises(KafkaException, match="users/0: Timed out"):
        watermarks(
            cast("AdminClient", Silent()),
            [("users", 0)],
            timedelta(seconds=seconds),
            committed=True,
        )

    assert clock[0] <= 2 * seconds + 0.2
    assert limits[0] <= max(1, min(5, seconds / 4))
    assert max(limits) >= 0.9 * seconds


@pytest.mark.parametrize(
    ("answers", "asked", "text"),
    [
        (
            [OFFSET_INVALID, ClientError(ClientError.TOPIC_AUTHORIZATION_FAILED)],
            1,
            "users/1: .*authorization",
        ),
        ([ClientError(ClientError.UNKNOWN_TOPIC_OR_PART), 7], 4, "users/0: .*Unknown topic"),
    ],
)
def test_what_the_cluster_has_answered_says_more_than_its_silence(
    clock: list[float], answers: list[int | ClientError], asked: int, text: str
) -> None:
    """About another partition, or about its metadata; a final error needs no other attempt."""
    questions: list[float] = []

    class Answers:
        """A client of a cluster that does not return its metadata in time."""

        def list_offsets(self, places: Any, **_: Any) -> Any:
            questions.append(clock[0])
            futures: list[Future[Any]] = [Future() for _ in places]
            for future, answer in zip(futures, answers, strict=True):
                if isinstance(answer, ClientError):
                    future.set_exception(KafkaException(answer))
                else:
                    future.set_result(SimpleNamespace(offset=answer))
            return dict(zip(places, futures, strict=True))

        def list_topics(self, *, timeout: float) -> Any:
            clock[0] += timeout
            raise KafkaException(ClientError(ClientError._TRANSPORT))  # noqa: SLF001 - as above

    with pytest.raises(KafkaException, match=text):
        watermarks(
            cast("AdminClient", Answers()),
            [("users", 0), ("users", 1)],
            timedelta(seconds=15),
            committed=True,
        )

    assert len(questions) == asked


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("answers", [[False], [False, True], [False, False, True]])
def test_a_client_ends_with_its_question(answers: list[bool]) -> None:
    """It has threads, and nobody knows when garbage is collected: each attempt of a lane makes another client."""
    given = chain(answers, repeat(answers[-1]))

    class Client:
        """A client of a cluster that answers in the end, or never."""

        def list_offsets(self, places: Any, **_: Any) -> Any:
            answer: Future[Any] = Future()
            if next(given):
                answer.set_result(SimpleNamespace(offset=7))
            else:
                answer.set_exception(KafkaException(ClientError(ClientError.OFFSET_NOT_AVAILABLE)))
            return dict.fromkeys(places, answer)

    client = Client()
    known = weakref.ref(client)
    gc.disable()
    try:
        with suppress(KafkaException):
            watermarks(cast("AdminClient", client), [("users", 0)], LONG, committed=True)
        del client
        assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "code", [ClientError.KAFKA_STORAGE_ERROR, ClientError.REPLICA_NOT_AVAILABLE]
)
def test_the_leader_is_looked_for_if_a_broker_has_lost_its_disk(
    kafka: KafkaHarness, code: int
) -> None:
    """The client itself remembers the broker as the leader then."""
    topic = kafka.topic("users")
    admin = Answering({"bootstrap.servers": kafka.address}, [code, None, None])

    assert watermarks(admin, [(topic, 0)], LONG, committed=True) == {(topic, 0): (0, 0)}
    assert len(admin.looks) == 1


@pytest.mark.usefixtures("clock")
def test_an_error_is_the_last_answer_rather_than_the_end_of_the_time() -> None:
    """A last attempt may have too little time for any answer."""

    class Unready:
        """A consumer of a group whose coordinator is never available."""

        def committed(self, _: Any, timeout: float) -> Any:
            is_short = timeout < 0.5
            code = (
                ClientError._TIMED_OUT if is_short else ClientError.COORDINATOR_NOT_AVAILABLE  # noqa: SLF001 - as above
            )
            raise KafkaException(ClientError(code))

    with pytest.raises(KafkaException, match="Coordinator not available"):
        committed_offsets(cast("Consumer", Unready()), [], timedelta(seconds=1))


def test_offsets_of_a_cluster_that_does_not_answer_are_an_error() -> None:
    """The client returns the offset -1001 then, which is no end of a partition; once the cluster answers, all is well."""
    with EmbeddedKafka() as broker:
        broker.create_topic("users")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        partitions = [("users", 0)]
        before = watermarks(admin, partitions, LONG, committed=True)
        broker.pause()
        with pytest.raises(KafkaException, match="Timed out"):
            watermarks(admin, partitions, timedelta(seconds=1), committed=True)
        broker.resume()
        wait_for_leaders(admin, "users", 1, LONG)
        after = watermarks(admin, partitions, LONG, committed=True)

    assert before == after == {("users", 0): (0, 0)}


def test_offsets_are_found_again_after_a_change_of_leaders() -> None:
    """A client that has known the former leaders asks for the present ones; a partition that is gone stays an error."""
    with EmbeddedKafka() as broker:
        broker.create_topic("users")
        partitions = [("users", 0)]
        early, late = (AdminClient({"bootstrap.servers": broker.bootstrap_servers}) for _ in "12")
        before = [watermarks(each, partitions, LONG, committed=True) for each in (early, late)]
        broker.restart()
        at_once = watermarks(early, partitions, LONG, committed=True)

        def has_connected_again() -> bool:
            question = {TopicPartition("users", 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call] # as the client has it
            with pytest.raises(KafkaException) as raised:
                late.list_offsets(question)[TopicPartition("users", 0)].result()
            return reason_of(raised.value).code() == ClientError.FENCED_LEADER_EPOCH

        wait(has_connected_again)
        afterwards = watermarks(late, partitions, LONG, committed=True)
        with pytest.raises(KafkaException, match="No leaders found"):
            watermarks(late, [("users", 7)], LONG, committed=True)

    assert before == [at_once, afterwards] == [{("users", 0): (0, 0)}] * 2


def test_a_broker_that_has_not_answered_is_asked_again(kafka: KafkaHarness) -> None:
    """The client returns an invalid offset for it, at once if the connection was lost; there is time left."""
    topic = kafka.topic("users")
    lost = chain([True], repeat(False))

    class Losing(AdminClient):
        def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
            found = super().list_offsets(*args, **kwargs)
            if next(lost):
                for answer in found.values():
                    answer.result().offset = OFFSET_INVALID
            return found

    admin = Losing({"bootstrap.servers": kafka.address})

    assert watermarks(admin, [(topic, 0)], LONG, committed=True) == {(topic, 0): (0, 0)}


def test_offsets_of_new_partitions_are_found(kafka: KafkaHarness) -> None:
    """A client that has known the topic before looks again."""
    topic = kafka.topic("users")
    admin = AdminClient({"bootstrap.servers": kafka.address})
    before = watermarks(admin, [(topic, 0)], LONG, committed=True)
    other = AdminClient({"bootstrap.servers": kafka.address})
    other.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)

    partitions = [(topic, number) for number in range(3)]
    after = watermarks(admin, partitions, LONG, committed=True)

    assert before == {(topic, 0): (0, 0)}
    assert after == dict.fromkeys(partitions, (0, 0))


def test_offsets_of_dates(kafka: KafkaHarness) -> None:
    """The first record of the date or a later one; a negative number after the last record, and in empty partitions."""
    topic = kafka.topic("users", 2)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    producer = Producer({"bootstrap.servers": kafka.address})
    for second in range(3):
        moment = start + timedelta(seconds=second)
        producer.produce(topic, "v", partition=0, timestamp=int(moment.timestamp() * 1000))
    producer.flush(30)
    admin = AdminClient({"bootstrap.servers": kafka.address})

    found = [
        dated_offsets(admin, [(topic, 0), (topic, 1)], date, LONG, committed=False)
        for date in (
            start,
            start + timedelta(seconds=0.5),
            start + timedelta(seconds=2),
            start + timedelta(seconds=3),
        )
    ]

    assert [each[topic, 0] for each in found] == [0, 1, 2, -1]
    assert {each[topic, 1] for each in found} == {-1}
