# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import logging.handlers
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from harness import KafkaHarness, wait
from patience import SECONDS

from statefun.dev import EmbeddedKafka
from statefun.dev.dev_topics import wait_for_leaders
from statefun.runtime.kafka.client import (
    cluster_metadata,
    committed_offsets,
    connect,
    partitions_of,
    reason_of,
    watermarks,
)
from statefun.sdk.errors import ConfigurationError, KafkaError, TopicError

NOWHERE = "127.0.0.1:1"
SHORT = timedelta(milliseconds=200)
LONG = timedelta(seconds=30)


def test_properties_of_the_java_client_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Each property that librdkafka lacks is named in a warning, and the client is made."""
    properties = {
        "bootstrap.servers": NOWHERE,
        "key.deserializer": "org.example.Deserializer",
        "client.id": "me",
        "value.deserializer": "org.example.Deserializer",
    }

    with caplog.at_level(logging.WARNING, "statefun.kafka"):
        producer = connect(Producer, "egress test/out", properties)

    assert isinstance(producer, Producer)
    assert sorted(caplog.messages) == [
        "egress test/out: librdkafka has no property key.deserializer; the property is ignored",
        "egress test/out: librdkafka has no property value.deserializer; the property is ignored",
    ]
    assert sorted(properties) == [
        "bootstrap.servers",
        "client.id",
        "key.deserializer",
        "value.deserializer",
    ]


def test_a_value_that_the_client_refuses_is_named() -> None:
    """The error names the component and the property, and has the client's reason."""
    properties = {"bootstrap.servers": NOWHERE, "group.id": "g", "session.timeout.ms": "long"}

    with pytest.raises(ConfigurationError) as caught:
        connect(Consumer, "ingress test/in", properties)

    assert caught.value.message == (
        'ingress test/in: Invalid value for configuration property "session.timeout.ms"'
    )


def test_the_client_does_not_write_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Warnings of librdkafka during reconnects do not reach the user's log."""
    shown = logging.handlers.BufferingHandler(1000)
    logging.getLogger("statefun").addHandler(shown)
    admin = connect(AdminClient, "ingress test/in", {"bootstrap.servers": NOWHERE})

    with pytest.raises(KafkaError):
        cluster_metadata("ingress test/in", NOWHERE, admin, SHORT)
    admin.poll(0)
    logging.getLogger("statefun").removeHandler(shown)

    assert capfd.readouterr() == ("", "")
    assert shown.buffer == []


def test_a_cluster_that_does_not_answer_is_named() -> None:
    """The error names the component, the address, the time, and the settings to check."""
    admin = connect(AdminClient, "ingress test/in", {"bootstrap.servers": NOWHERE})

    with pytest.raises(KafkaError) as caught:
        cluster_metadata("ingress test/in", NOWHERE, admin, SHORT)

    assert caught.value.message.startswith(
        "ingress test/in: no Kafka broker answered at 127.0.0.1:1 within 0.2 s ("
    )
    assert caught.value.message.endswith("); is a broker running, and is the address right?")


@pytest.mark.broker
def test_partitions_of_a_topic_are_in_order(kafka: KafkaHarness) -> None:
    """A topic that exists has its partitions."""
    topic = kafka.topic("users", partitions=12)
    admin = connect(AdminClient, "ingress test/in", {"bootstrap.servers": kafka.address})

    metadata = cluster_metadata("ingress test/in", kafka.address, admin, LONG)

    assert partitions_of("ingress test/in", topic, metadata, kafka.address) == list(range(12))


@pytest.mark.broker
def test_a_missing_topic_of_a_cluster_is_named(kafka: KafkaHarness) -> None:
    """The error names the component, the topic and the address, and the command that creates the topic."""
    admin = connect(AdminClient, "ingress test/in", {"bootstrap.servers": kafka.address})
    metadata = cluster_metadata("ingress test/in", kafka.address, admin, LONG)

    with pytest.raises(TopicError) as caught:
        partitions_of("ingress test/in", "nowhere", metadata, kafka.address)

    assert caught.value.message == (
        f"ingress test/in: topic nowhere does not exist at {kafka.address}; create it first "
        f"(kafka-topics.sh --bootstrap-server {kafka.address} --create --topic nowhere)"
    )


@pytest.mark.broker
def test_a_topic_that_the_cluster_refuses_is_named(kafka: KafkaHarness) -> None:
    """The cluster's error about a topic is passed on."""
    admin = connect(AdminClient, "ingress test/in", {"bootstrap.servers": kafka.address})
    metadata = admin.list_topics("nowhere", timeout=SECONDS)

    with pytest.raises(TopicError) as caught:
        partitions_of("ingress test/in", "nowhere", metadata, kafka.address)

    assert caught.value.message == (
        f"ingress test/in: topic nowhere at {kafka.address}: Broker: Unknown topic or partition"
    )


@pytest.mark.broker
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


@pytest.mark.broker
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


@pytest.mark.broker
def test_a_partition_that_moves_is_asked_for_again(kafka: KafkaHarness) -> None:
    """A broker may still have to learn that it leads the partition; all other errors are final."""
    topic = kafka.topic("users")
    kafka.send(topic, [("k", "v")])
    first, forbidden = ClientError.NOT_LEADER_FOR_PARTITION, ClientError.TOPIC_AUTHORIZATION_FAILED
    codes = iter([first, None, None, forbidden])

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
    with pytest.raises(KafkaException):
        watermarks(admin, [(topic, 0)], LONG, committed=True)


@pytest.mark.broker
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


@pytest.mark.broker
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
