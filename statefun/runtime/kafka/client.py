# SPDX-License-Identifier: Apache-2.0
"""Clients of confluent-kafka for work that Spark's Kafka source does not do, with readable errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
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
# librdkafka logs every reconnect; statefun reports the problems that matter as errors of its own.
_client_logger = logging.getLogger("statefun.kafka.librdkafka")
_client_logger.addHandler(logging.NullHandler())
_client_logger.propagate = False

C = TypeVar("C")
T = TypeVar("T")
_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=1)
_LOOKING = {
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.FENCED_LEADER_EPOCH,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError._NOENT,  # noqa: SLF001 - "No leaders found"; how the client names it
}
"""Error codes of a cluster that has not found a group's coordinator or a partition's leader yet, or has changed it."""
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
    starts: Sequence[TopicPartition],
    timeout: timedelta,
) -> Iterator[Message]:
    """Yield the committed records of partitions, from the offsets ``starts`` to the present ends.

    Raises:
        KafkaError: if the partitions cannot be read, or no record arrives within ``timeout``.
    """
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
        consumer.assign(list(starts))
        ended_partitions = 0
        while ended_partitions < len(starts):
            message = consumer.poll(timeout.total_seconds())
            if message is None:
                raise KafkaError(
                    f"{owner}: the broker at {address} has sent nothing of topic {starts[0].topic} for "
                    f"{timeout.total_seconds():g} s, although more is to come; is it overloaded, or its network slow?"
                )
            error = message.error()
            if error is None:
                yield message
            elif error.code() == ClientError._PARTITION_EOF:  # noqa: SLF001 - how the client names it
                ended_partitions += 1
            else:
                raise KafkaError(f"{owner}: topic {starts[0].topic} at {address}: {error.str()}")
    finally:
        consumer.close()


def committed_offsets(
    consumer: Consumer, partitions: list[TopicPartition], timeout: timedelta
) -> list[TopicPartition]:
    """Return the offsets that the consumer's group has committed.

    A cluster that has just started, or lost a broker, must find the group's coordinator first.

    Raises:
        KafkaException: if the cluster refuses the request, or does not answer within ``timeout``.
    """
    return _answer(lambda patience: consumer.committed(partitions, timeout=patience), timeout)


def _answer(
    request: Callable[[float], T],
    timeout: timedelta,
    look_again: Callable[[float], bool] = lambda _: True,
) -> T:
    """Send a request to a cluster, and repeat it while the cluster has no coordinator or leader yet.

    Args:
        request: sends the request, and waits for the answer for up to a number of seconds.
        timeout: how long the cluster may take to answer.
        look_again: prepares the next request within a number of seconds, and returns whether the request may succeed.

    Raises:
        KafkaException: if the cluster refuses the request, or does not answer within ``timeout``.
    """
    deadline, pause = time.monotonic() + timeout.total_seconds(), _PAUSE.total_seconds()
    while True:
        try:
            return request(max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            if (
                reason_of(error).code() not in _LOOKING
                or not look_again(max(0.0, deadline - time.monotonic()))
                or time.monotonic() + pause > deadline
            ):
                raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE.total_seconds())


def watermarks(
    admin: AdminClient,
    partitions: Iterable[tuple[str, int]],
    timeout: timedelta,
    *,
    committed: bool,
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return, for each partition, the offset of its first record, and the offset at which it ends now.

    Args:
        admin: a client that is connected to the cluster.
        partitions: the topics and numbers of the partitions.
        timeout: how long the cluster may take to answer.
        committed: whether a partition ends where readers with ``read_committed`` have to stop; if not, it
            ends after its last record.

    Raises:
        KafkaException: if the cluster does not return all offsets.
    """
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    partitions_by_key = {TopicPartition(*partition): partition for partition in partitions}
    if not partitions_by_key:
        return {}

    def offsets(spec: OffsetSpec, patience: float) -> list[int]:
        found = admin.list_offsets(
            dict.fromkeys(partitions_by_key, spec),
            isolation_level=isolation,
            request_timeout=patience,
        )
        answers = [found[key].result().offset for key in partitions_by_key]
        if OFFSET_INVALID in answers:  # how the client says that the cluster has not answered
            raise KafkaException(ClientError(ClientError._TIMED_OUT))  # noqa: SLF001 - how the client names it
        return answers

    def look_again(patience: float) -> bool:
        # After a change of leaders, librdkafka (2.16) sends its former leaders and epochs until it forgets them after
        # minutes, unless it is asked for the metadata.
        try:
            topics = admin.list_topics(timeout=patience).topics
        except KafkaException:
            return True  # the next request reports the reason
        return all(
            topic in topics and number in topics[topic].partitions
            for topic, number in partitions_by_key.values()
        )

    # One question after the other: while librdkafka still asks for the leaders of the partitions, the answer for one
    # question may free the memory of the next one, which another thread begins (2.16, query_leaders_async).
    ends = [
        _answer(partial(offsets, spec), timeout, look_again)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call] # as the client has it
    ]
    return dict(zip(partitions_by_key.values(), zip(*ends, strict=True), strict=True))


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
