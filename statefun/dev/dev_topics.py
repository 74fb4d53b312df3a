# SPDX-License-Identifier: Apache-2.0
"""Creates, lists and describes topics of a Kafka cluster, for development and tests."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import attrs
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from statefun.runtime.kafka.client import (
    admin_for,
    cluster_metadata,
    partitions_of,
    raising_kafka_errors,
    reason_of,
)
from statefun.runtime.kafka.cluster_offsets import watermarks
from statefun.sdk.errors import KafkaError

OWNER = "statefun dev"
"""How error texts name the client: the command that uses the cluster."""
LOCAL_PORT = 9092
"""The port of the broker on this machine, unless the user gives another one."""
ADDRESS_VARIABLE = "KAFKA_ADDRESS"
"""The environment variable with the address of a broker, which module files of the docs use, too."""
ADMIN_TIMEOUT = timedelta(seconds=10)
"""How long the cluster may take to answer a request."""
_POLL = timedelta(milliseconds=25)


@attrs.frozen
class TopicPartitions:
    """A topic, and the offsets of its partitions."""

    name: str
    offsets: Sequence[tuple[int, int]]
    """For each partition, the offset of its first record and the offset that its next record will get."""

    @property
    def records(self) -> int:
        """The number of records in all partitions; control records of Kafka's transactions count, too."""
        return sum(end - first for first, end in self.offsets)


def default_address() -> str:
    """Return the address of the broker that commands use if the user gives none."""
    return os.environ.get(ADDRESS_VARIABLE) or f"localhost:{LOCAL_PORT}"


def cluster_topics(address: str) -> ClusterMetadata:
    """Return the metadata of a cluster, such as its topics, from the broker at an address.

    Raises:
        KafkaError: if no broker answers.
    """
    return cluster_metadata(OWNER, address, admin_for(OWNER, address, {}), ADMIN_TIMEOUT)


def list_topics(address: str) -> list[TopicPartitions]:
    """Return the topics of a cluster, sorted by name; topics whose names begin with ``__`` are left out.

    Raises:
        KafkaError: if the cluster does not answer.
    """
    topics = cluster_topics(address).topics
    return [describe_topic(address, name) for name in sorted(topics) if not name.startswith("__")]


def topic_partitions(address: str, name: str) -> list[int]:
    """Return the numbers of a topic's partitions.

    Raises:
        TopicError: if the cluster does not have the topic; the error has the command that creates it.
        KafkaError: if no broker answers.
    """
    creation = f"statefun dev topic create {shlex.quote(name)}"
    if address != default_address():
        creation += f" --address {shlex.quote(address)}"
    return partitions_of(OWNER, name, cluster_topics(address), address, creation=creation)


def describe_topic(address: str, name: str) -> TopicPartitions:
    """Return a topic of a cluster with the offsets of its partitions.

    Raises:
        TopicError: if the cluster does not have the topic.
        KafkaError: if the cluster does not answer.
    """
    numbers = topic_partitions(address, name)
    admin = admin_for(OWNER, address, {})
    partitions = [(name, number) for number in numbers]
    with raising_kafka_errors(f"{OWNER}: topic {name} at {address}"):
        offsets = watermarks(admin, partitions, ADMIN_TIMEOUT, committed=False)
    return TopicPartitions(name, [offsets[name, number] for number in numbers])


def new_topic(address: str, name: str, partitions: int) -> None:
    """Create a topic on the cluster at an address, and wait until it can be used.

    Raises:
        KafkaError: if the cluster does not create the topic, for example because it exists.
    """
    cluster_topics(address)  # fails soon if no broker answers; creating the topic would wait long
    with raising_kafka_errors(f"{OWNER}: topic {name} at {address} cannot be created"):
        create_topic(admin_for(OWNER, address, {}), name, partitions, {}, ADMIN_TIMEOUT)


def create_topic(
    admin: AdminClient, name: str, partitions: int, config: Mapping[str, str], timeout: timedelta
) -> None:
    """Create a topic and wait until all of its partitions have a leader.

    Raises:
        KafkaException: if the cluster does not create the topic.
        KafkaError: if a partition has no leader within ``timeout``.
    """
    seconds = timeout.total_seconds()
    topic = NewTopic(name, partitions, 1, config=dict(config))
    admin.create_topics([topic], request_timeout=seconds)[name].result(seconds)
    wait_for_leaders(admin, name, partitions, timeout)


def wait_for_leaders(admin: AdminClient, name: str, partitions: int, timeout: timedelta) -> None:
    """Wait until all partitions of a topic have a leader; repeat requests after lost connections.

    Raises:
        KafkaException: if a request fails, except for a lost connection.
        KafkaError: if a partition has no leader within ``timeout``.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    while (rest := deadline - time.monotonic()) > 0:
        try:
            metadata = admin.list_topics(name, timeout=rest).topics[name].partitions.values()
        except KafkaException as error:
            # The client repeats other requests after a lost connection, but not this one.
            if reason_of(error).code() != ClientError._TRANSPORT:  # noqa: SLF001 - its public name
                raise
        else:
            if len(metadata) == partitions and all(each.leader >= 0 for each in metadata):
                return
        time.sleep(_POLL.total_seconds())
    raise KafkaError(f"some partitions of topic {name!r} still have no leader after {timeout}")
