# SPDX-License-Identifier: Apache-2.0
"""Writes and reads single records, for development and tests."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin._metadata import ClusterMetadata

from statefun.runtime.kafka.client import (
    admin_for,
    cluster_metadata,
    connect,
    partitions_of,
    read_committed,
)
from statefun.sdk.errors import KafkaError

_TIMEOUT = timedelta(seconds=10)
_OWNER = "statefun dev"


class DevRecord(NamedTuple):
    """Key and value of a record."""

    key: bytes | None
    value: bytes | None


def send_record(address: str, topic: str, key: str, value: str) -> None:
    """Write a record and wait until the cluster has it.

    Args:
        address: host and port of a broker.
        topic: an existing topic.
        key: becomes the id of a function's address.
        value: written in UTF-8.

    Raises:
        TopicError: if there is no such topic.
        KafkaError: if the record is refused, or no broker answers.
    """
    _partitions(address, topic)
    refused: list[ClientError] = []
    producer = connect(Producer, _OWNER, {"bootstrap.servers": address})
    producer.produce(
        topic,
        value.encode(),
        key.encode(),
        on_delivery=lambda error, _: refused.append(error) if error else None,
    )
    if producer.flush(_TIMEOUT.total_seconds()) or refused:
        reason = refused[0].str() if refused else f"no answer within {_TIMEOUT.seconds} s"
        raise KafkaError(f"topic {topic} at {address}: the record is not written: {reason}")


def read_records(address: str, topic: str) -> list[DevRecord]:
    """Return the records that a topic has now, in order by partition.

    Args:
        address: host and port of a broker.
        topic: an existing topic.

    Raises:
        TopicError: if there is no such topic.
        KafkaError: if no broker answers.
    """
    starts = [
        TopicPartition(topic, number, OFFSET_BEGINNING) for number in _partitions(address, topic)
    ]
    found = list(read_committed(_OWNER, address, {}, starts, _TIMEOUT))
    found.sort(key=lambda record: (record.partition() or 0, record.offset() or 0))
    return [DevRecord(_bytes(record.key()), _bytes(record.value())) for record in found]


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def cluster_topics(address: str) -> ClusterMetadata:
    """Ask a broker for its topics.

    Raises:
        KafkaError: if no broker answers.
    """
    return cluster_metadata(_OWNER, address, admin_for(_OWNER, address, {}), _TIMEOUT)


def _partitions(address: str, topic: str) -> list[int]:
    return partitions_of(_OWNER, topic, cluster_topics(address), address)
