# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import logging.handlers
import threading
from collections import Counter
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from harness import KafkaHarness
from patience import SECONDS

from statefun.runtime.kafka.client import (
    cluster_metadata,
    connect,
    partitions_of,
    read_committed,
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
def test_a_partition_that_grows_meanwhile_hides_no_other_one(kafka: KafkaHarness) -> None:
    """A partition ends as often as a record comes; the others are read to their ends all the same."""
    topic = kafka.topic("users", 2)
    # One batch for each record, and one batch in each fetch.
    producer = Producer({"bootstrap.servers": kafka.address, "batch.num.messages": 1})
    for _ in range(300):
        producer.produce(topic, "v", partition=1)
    producer.flush(30)
    kafka.send(topic, [("k", "first")], partition=0)
    properties = {"fetch.message.max.bytes": 50}
    ranges = {(topic, 0): (0, None), (topic, 1): (0, None)}
    found: Counter[int | None] = Counter()

    for message in read_committed("test", kafka.address, properties, ranges, LONG):
        found[message.partition()] += 1
        if message.partition() == 1 and found[1] % 20 == 0:
            kafka.send(topic, [("k", "more")], partition=0)

    assert found[1] == 300


@pytest.mark.broker
def test_partitions_are_read_to_the_given_ends(kafka: KafkaHarness) -> None:
    """A new leader may show less at first than the former one had confirmed; what comes later is left out."""
    topic = kafka.topic("users", 3)
    kafka.send(topic, [("k", "1"), ("k", "2")], partition=0)
    kafka.send(topic, [("k", "1"), ("k", "2")], partition=1)
    ranges = {(topic, 0): (0, 3), (topic, 1): (1, 1), (topic, 2): (0, 0)}

    records = read_committed("test", kafka.address, {}, ranges, LONG)
    found = [next(records).value()]
    later = threading.Timer(0.5, kafka.send, (topic, [("k", "3"), ("k", "4")], 0))
    later.start()
    found += [record.value() for record in records]
    later.join()
    further = read_committed("test", kafka.address, {}, {(topic, 0): (3, 5)}, timedelta(seconds=3))
    last = next(further).value()

    assert found == [b"1", b"2", b"3"]
    assert last == b"4"
    with pytest.raises(KafkaError, match=f"has sent nothing of {topic}/0 for 3 s"):
        next(further)
