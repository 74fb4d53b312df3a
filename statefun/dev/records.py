# SPDX-License-Identifier: Apache-2.0
"""Writes records to a topic and reads the records of a topic, for development and tests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import attrs
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka import KafkaError as ClientError

from statefun.dev.dev_topics import (
    ADMIN_TIMEOUT,
    OWNER,
    cluster_topics,
    topic_partitions,
    wait_for_leaders,
)
from statefun.runtime.kafka.client import (
    admin_for,
    connect,
    raising_kafka_errors,
    read_committed,
)
from statefun.runtime.kafka.cluster_offsets import watermarks
from statefun.sdk.errors import KafkaError
from statefun.sdk.times import from_epoch_millis

_LOOK = timedelta(milliseconds=500)
_PAUSE = timedelta(milliseconds=20)
_COMMIT = timedelta(seconds=2)
"""How long a cluster may take to show the records of a transaction after it has confirmed the commit."""


class DevRecord(NamedTuple):
    """A record of a topic: its key and its value."""

    key: bytes | None
    value: bytes | None


@attrs.frozen
class PlacedRecord:
    """A record of a topic with its partition, offset, timestamp and headers."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    timestamp: datetime | None
    headers: Sequence[tuple[str, bytes | None]]

    @classmethod
    def of(cls, record: Any) -> PlacedRecord:
        """Convert a record that the Kafka client has read to a PlacedRecord."""
        kind, millis = record.timestamp()
        return cls(
            _bytes(record.key()),
            _bytes(record.value()),
            record.partition() or 0,
            record.offset() or 0,
            None if kind == TIMESTAMP_NOT_AVAILABLE else from_epoch_millis(millis),
            [(name, _bytes(value)) for name, value in record.headers() or ()],
        )


def send_record(address: str, topic: str, key: str, value: str | None) -> None:
    """Write a record to a topic and wait until the cluster has confirmed it.

    Args:
        address: host and port of a broker.
        topic: an existing topic.
        key: the key; an ingress makes it the id of a function's address.
        value: the value, which is written in UTF-8; None writes a tombstone.

    Raises:
        TopicError: if the cluster does not have the topic.
        KafkaError: if the broker does not accept the record, or no broker answers.
    """
    topic_partitions(address, topic)
    errors: list[ClientError] = []
    producer = connect(Producer, OWNER, {"bootstrap.servers": address})
    producer.produce(
        topic,
        None if value is None else value.encode(),
        key.encode(),
        on_delivery=lambda error, _: errors.append(error) if error else None,
    )
    if producer.flush(ADMIN_TIMEOUT.total_seconds()) or errors:
        reason = errors[0].str() if errors else f"no answer within {ADMIN_TIMEOUT.seconds} s"
        raise KafkaError(f"topic {topic} at {address}: the record cannot be written: {reason}")


def read_records(address: str, topic: str) -> list[DevRecord]:
    """Return the committed records that a topic has now, sorted by partition and offset.

    A cluster confirms a commit a little before it shows the records, so the function waits up to two seconds
    while transactions are open: after ``run()``, the result has all that an exactly-once egress has published.

    Args:
        address: host and port of a broker.
        topic: an existing topic.

    Raises:
        TopicError: if the cluster does not have the topic.
        KafkaError: if no broker answers.
    """
    return [DevRecord(record.key, record.value) for record in placed_records(address, topic)]


def placed_records(address: str, topic: str) -> list[PlacedRecord]:
    """Return the records that a topic has now, each with partition, offset, timestamp and headers.

    The arguments, the order of the records and the errors are the same as for :func:`read_records`.
    """
    messages = read_committed(OWNER, address, {}, _committed_ranges(address, topic), ADMIN_TIMEOUT)
    records = map(PlacedRecord.of, messages)
    return sorted(records, key=lambda record: (record.partition, record.offset))


def follow_records(address: str, topic: str) -> Iterator[PlacedRecord]:
    """Yield the records that a topic has now, then wait for new records and yield each, without end.

    Args:
        address: host and port of a broker.
        topic: an existing topic.

    Raises:
        TopicError: if the cluster does not have the topic.
        KafkaError: if no broker answers, or the topic cannot be read any more.
    """
    settings = {
        "bootstrap.servers": address,
        "group.id": "statefun",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    starts = _starts(address, topic)
    consumer: Consumer = connect(Consumer, OWNER, settings)
    try:
        consumer.assign(starts)
        last_answer = time.monotonic()
        while True:
            record = consumer.poll(_LOOK.total_seconds())
            error = None if record is None else record.error()
            if error is not None:
                raise KafkaError(f"{OWNER}: topic {topic} at {address}: {error.str()}")
            if record is not None:
                yield PlacedRecord.of(record)
            elif time.monotonic() - last_answer > ADMIN_TIMEOUT.total_seconds():
                cluster_topics(address)  # fails if the broker has ended; poll does not fail then
            else:
                continue
            last_answer = time.monotonic()
    finally:
        consumer.close()


def _starts(address: str, topic: str) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number, OFFSET_BEGINNING)
        for number in topic_partitions(address, topic)
    ]


def _committed_ranges(address: str, topic: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Wait up to two seconds until readers see all records of a topic; return where its partitions begin and end.

    The result has offsets, because librdkafka takes half a second to find the beginning of a partition itself.
    """
    partitions = [(topic, number) for number in topic_partitions(address, topic)]
    admin = admin_for(OWNER, address, {})
    deadline = time.monotonic() + _COMMIT.total_seconds()
    with raising_kafka_errors(f"{OWNER}: topic {topic} at {address}"):
        # A cluster that was started a moment ago, or was frozen, may have none.
        wait_for_leaders(admin, topic, len(partitions), ADMIN_TIMEOUT)
        while True:
            visible, written = (
                watermarks(admin, partitions, ADMIN_TIMEOUT, committed=committed)
                for committed in (True, False)
            )
            if visible == written or time.monotonic() > deadline:
                return visible
            time.sleep(_PAUSE.total_seconds())


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
