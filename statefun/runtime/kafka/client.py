# SPDX-License-Identifier: Apache-2.0
"""Clients of confluent-kafka for work that Spark's Kafka source does not do, with readable errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from statefun.runtime.kafka.security import redacted, translate
from statefun.sdk.errors import ConfigurationError, KafkaError, TopicError

logger = logging.getLogger("statefun.kafka")
# librdkafka logs every reconnect; statefun reports the problems that matter as errors of its own.
_client_logger = logging.getLogger("statefun.kafka.librdkafka")
_client_logger.addHandler(logging.NullHandler())
_client_logger.propagate = False

C = TypeVar("C")
T = TypeVar("T")
_UNKNOWN_PROPERTY = 'No such configuration property: "'


def reason_of(error: KafkaException) -> ClientError:
    """Return the error that an exception of confluent-kafka holds; the error has a code and a text."""
    reason: ClientError = error.args[0]
    return reason


@contextmanager
def raising_kafka_errors(text: str) -> Iterator[None]:
    """Replace an exception of confluent-kafka by a KafkaError with ``text`` and the exception's reason.

    Args:
        text: the beginning of the error text: the component, and what could not be done.

    Raises:
        KafkaError: if the block raises an exception of confluent-kafka.
    """
    try:
        yield
    except KafkaException as error:
        raise KafkaError(f"{text}: {reason_of(error).str()}") from error


def connect(client: Callable[[dict[str, Any]], C], owner: str, properties: Mapping[str, Any]) -> C:
    """Make a client of confluent-kafka from Kafka properties.

    Security settings are translated. Other properties that only the Java client knows have no meaning for
    librdkafka: they are left out, with a warning that names them.

    Args:
        client: the class of the client.
        owner: the component that needs the client, such as ``egress com.example/greets``, for error texts.
        properties: the properties, in Kafka's names.

    Raises:
        ConfigurationError: if the client refuses the value of a property, or does not know a
            security setting.
    """
    settings: dict[str, Any] = translate(owner, properties)
    while True:
        try:
            return client({**settings, "logger": _client_logger})
        except KafkaException as error:
            text = reason_of(error).str() if error.args else str(error)
            name = text.partition(_UNKNOWN_PROPERTY)[2].rstrip('"')
            if name not in settings:
                # Not chained: librdkafka's text may quote a secret value.
                raise ConfigurationError(f"{owner}: {redacted(text, settings)}") from None
            logger.warning(
                "%s: librdkafka has no property %s; the property is ignored", owner, name
            )
            del settings[name]


def admin_for(owner: str, address: str, properties: Mapping[str, Any]) -> AdminClient:
    """Return an admin client of the cluster at ``address``; ``owner`` is for error texts."""
    return connect(AdminClient, owner, {**properties, "bootstrap.servers": address})


def read_committed(
    owner: str,
    address: str,
    properties: Mapping[str, Any],
    ranges: Mapping[tuple[str, int], tuple[int, int | None]],
    timeout: timedelta,
) -> Iterator[Message]:
    """Yield the committed records of ranges of partitions.

    Args:
        owner: the component that reads, for error texts.
        address: host and port of a broker.
        properties: further properties of the consumer.
        ranges: by topic and number of a partition, the first offset to read, and the offset before which to stop; None
            to stop at the present end. A leader that was just elected may show an earlier end than the former one.
        timeout: how long to wait for the next record.

    Raises:
        KafkaError: if the partitions cannot be read, or no record arrives within ``timeout``, such as while a
            transaction is open before the end of a range.
    """
    left = {
        place: (start, end) for place, (start, end) in ranges.items() if end is None or start < end
    }
    if not left:
        return
    settings = {
        **properties,
        "bootstrap.servers": address,
        # librdkafka insists on a group, even for clients that use none.
        "group.id": "statefun",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # An empty answer shows the end of a partition; by default a broker waits for half a second before it sends one.
        "fetch.wait.max.ms": 10,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    consumer: Consumer = connect(Consumer, owner, settings)
    try:
        consumer.assign([TopicPartition(*place, start) for place, (start, _) in left.items()])
        while left:
            message = consumer.poll(timeout.total_seconds())
            if message is None:
                topic, number = min(left)
                raise KafkaError(
                    f"{owner}: the broker at {address} has sent nothing of {topic}/{number} for "
                    f"{timeout.total_seconds():g} s, although more is to come; is it overloaded, its network slow, or "
                    "a transaction open? A transaction of a process that was killed ends when an application goes on "
                    "with its checkpoint, or after transaction.timeout.ms of the producer"
                )
            error = message.error()
            is_end = error is not None and error.code() == ClientError._PARTITION_EOF  # noqa: SLF001 - how the client names it
            if error is not None and not is_end:
                where = (
                    f"{message.topic()}/{message.partition()}" if message.topic() else min(left)[0]
                )
                raise KafkaError(f"{owner}: {where} at {address}: {error.str()}")
            place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            if place not in left:
                continue
            end = left[place][1]
            if not is_end and (end is None or offset < end):
                yield message
            # A partition ends again with each record that comes meanwhile, and at an earlier offset if its new leader
            # has to learn what the former one has confirmed.
            next_offset = offset if is_end else offset + 1
            is_read = is_end if end is None else next_offset >= end
            if is_read:
                del left[place]
                consumer.pause([TopicPartition(*place)])
    finally:
        consumer.close()


def cluster_metadata(
    owner: str, address: str, admin: AdminClient, timeout: timedelta
) -> ClusterMetadata:
    """Return the metadata of a cluster, which list its brokers and topics.

    Raises:
        KafkaError: if no broker answers within ``timeout``.
    """
    try:
        return admin.list_topics(timeout=timeout.total_seconds())
    except KafkaException as error:
        raise KafkaError(
            f"{owner}: no Kafka broker answered at {address} within "
            f"{timeout.total_seconds():g} s ({reason_of(error).str()}); "
            "is a broker running, and is the address right?"
        ) from error


def partitions_of(
    owner: str, topic: str, metadata: ClusterMetadata, address: str, *, creation: str | None = None
) -> list[int]:
    """Return the numbers of a topic's partitions.

    Args:
        owner: who uses the topic, for error texts.
        topic: the topic.
        metadata: the metadata of the cluster.
        address: host and port of a broker of the cluster.
        creation: the command that creates the topic, for the error text; None: that of Kafka.

    Raises:
        TopicError: if the topic does not exist, or this client may not describe it.
    """
    topic_metadata = metadata.topics.get(topic)
    if topic_metadata is None:
        if creation is None:
            creation = f"kafka-topics.sh --bootstrap-server {address} --create --topic {topic}"
        raise TopicError(
            f"{owner}: topic {topic} does not exist at {address}; create it first ({creation})"
        )
    if topic_metadata.error is not None:
        raise TopicError(f"{owner}: topic {topic} at {address}: {topic_metadata.error.str()}")
    return sorted(topic_metadata.partitions)
