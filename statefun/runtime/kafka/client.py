# SPDX-License-Identifier: Apache-2.0
"""confluent-kafka clients for what Spark's Kafka source does not do, with errors for people."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import ClusterMetadata

from statefun.runtime.kafka.security import redacted, translate
from statefun.sdk.errors import ConfigurationError, KafkaError, TopicError

logger = logging.getLogger("statefun.kafka")
# librdkafka reports every reconnect; what matters reaches the user as an error of ours.
_client_logger = logging.getLogger("statefun.kafka.librdkafka")
_client_logger.addHandler(logging.NullHandler())
_client_logger.propagate = False

C = TypeVar("C")
_PAUSE = timedelta(milliseconds=100)
_LOOKING = {
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
}
"""Answers of a cluster that is about to know who looks after a group."""
_UNKNOWN_PROPERTY = 'No such configuration property: "'


def connect(client: Callable[[dict[str, Any]], C], owner: str, properties: Mapping[str, Any]) -> C:
    """Make a client of confluent-kafka from Kafka properties.

    Security settings are translated. Other properties that only the Java client knows do not
    concern a client of librdkafka: they are left out, with a warning that names them.

    Args:
        client: the class to make.
        owner: who needs it, such as ``egress com.example/greets``, for messages.
        properties: in Kafka's names.

    Raises:
        ConfigurationError: if a property has a value that the client refuses, or says something
            about security that it does not know.
    """
    settings: dict[str, Any] = translate(owner, properties)
    while True:
        try:
            return client({**settings, "logger": _client_logger})
        except KafkaException as error:
            text = str(error.args[0].str() if error.args else error)
            name = text.partition(_UNKNOWN_PROPERTY)[2].rstrip('"')
            if name not in settings:
                # Not chained: librdkafka may quote a value.
                raise ConfigurationError(f"{owner}: {redacted(text, settings)}") from None
            logger.warning("%s: librdkafka has no property %s; it is left out", owner, name)
            del settings[name]


def admin_for(owner: str, address: str, properties: Mapping[str, Any]) -> AdminClient:
    """Make a client that asks a cluster about itself, or changes it."""
    return connect(AdminClient, owner, {**properties, "bootstrap.servers": address})


def read_committed(
    owner: str,
    address: str,
    properties: Mapping[str, Any],
    starts: Sequence[TopicPartition],
    timeout: timedelta,
) -> Iterator[Message]:
    """Read partitions from where ``starts`` says to what is their committed end now.

    Raises:
        KafkaError: if they cannot be read, or nothing comes for as long as ``timeout``.
    """
    settings = {
        **properties,
        "bootstrap.servers": address,
        # librdkafka insists on a group, even for clients that use none.
        "group.id": "statefun",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    consumer: Consumer = connect(Consumer, owner, settings)
    try:
        consumer.assign(list(starts))
        ended = 0
        while ended < len(starts):
            message = consumer.poll(timeout.total_seconds())
            if message is None:
                raise KafkaError(f"{owner}: topic {starts[0].topic} at {address} does not answer")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == ClientError._PARTITION_EOF:  # noqa: SLF001 - how the client names it
                ended += 1
            else:
                raise KafkaError(f"{owner}: topic {starts[0].topic} at {address}: {error.str()}")
    finally:
        consumer.close()


def committed_offsets(
    consumer: Consumer, partitions: list[TopicPartition], timeout: timedelta
) -> list[TopicPartition]:
    """Return what the consumer's group has committed.

    A cluster that has just started, or lost a broker, first has to find out who knows.

    Raises:
        KafkaException: if the cluster refuses, or does not know within ``timeout``.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        left = max(0.0, deadline - time.monotonic())
        try:
            return consumer.committed(partitions, timeout=left)
        except KafkaException as error:
            if error.args[0].code() not in _LOOKING or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE.total_seconds())


def watermarks(
    admin: AdminClient,
    partitions: Iterable[tuple[str, int]],
    timeout: timedelta,
    *,
    committed: bool,
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first offset of each partition, and the next one: all are asked for at once.

    Args:
        admin: connected to the cluster.
        partitions: topics and numbers.
        timeout: how long the cluster may take to answer.
        committed: whether the next one is that of readers that see what is committed alone.

    Raises:
        KafkaException: if the cluster does not tell all of them.
    """
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(*partition): partition for partition in partitions}
    if not asked:
        return {}
    first, end = (
        admin.list_offsets(
            dict.fromkeys(asked, spec),
            isolation_level=isolation,
            request_timeout=timeout.total_seconds(),
        )
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call] # as the client has it
    )
    return {
        partition: (first[key].result().offset, end[key].result().offset)
        for key, partition in asked.items()
    }


def cluster_metadata(
    owner: str, address: str, admin: AdminClient, timeout: timedelta
) -> ClusterMetadata:
    """Ask a cluster for its topics.

    Raises:
        KafkaError: if no broker answers within ``timeout``.
    """
    try:
        return admin.list_topics(timeout=timeout.total_seconds())
    except KafkaException as error:
        raise KafkaError(
            f"{owner}: no Kafka broker answered at {address} within "
            f"{timeout.total_seconds():g} s ({error.args[0].str()}); "
            "is it running, and is the address right?"
        ) from error


def partitions_of(owner: str, topic: str, metadata: ClusterMetadata, address: str) -> list[int]:
    """Return the partitions of a topic.

    Raises:
        TopicError: if it does not exist or may not be read.
    """
    found = metadata.topics.get(topic)
    if found is None:
        raise TopicError(
            f"{owner}: topic {topic} does not exist at {address}; create it first "
            f"(kafka-topics.sh --bootstrap-server {address} --create --topic {topic})"
        )
    if found.error is not None:
        raise TopicError(f"{owner}: topic {topic} at {address}: {found.error.str()}")
    return sorted(found.partitions)
