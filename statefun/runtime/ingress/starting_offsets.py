# SPDX-License-Identifier: Apache-2.0
"""Finds the offset of every partition at which a fresh checkpoint starts to read.

Spark's Kafka source knows only earliest, latest and explicit offsets. This module finds explicit offsets for
other startup positions, with a client that joins no consumer group.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from statefun.module.model import (
    AutoOffsetReset,
    FromDate,
    FromEarliest,
    FromLatest,
    FromSpecificOffsets,
    KafkaIngress,
    TopicPartition,
)
from statefun.runtime.ingress.subscription import partitions_to_read
from statefun.runtime.kafka.client import (
    cluster_metadata,
    connect,
    raising_kafka_errors,
)
from statefun.runtime.kafka.cluster_offsets import committed_offsets, dated_offsets, watermarks
from statefun.sdk.errors import KafkaError

logger = logging.getLogger("statefun.ingress")

ISOLATION = {"isolation.level": "read_committed"}
"""The property with which an ingress, by default, does not read records of aborted transactions."""

# Spark's numbers for the first and the next offset, as they are when the first batch is planned.
EARLIEST, LATEST = -2, -1


_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")


def client_properties(ingress: KafkaIngress) -> dict[str, Any]:
    """Return the properties of a consumer that looks up offsets in a cluster, and joins no consumer group."""
    # The same level as Spark's source: records after the beginning of the first open transaction are
    # visible to both clients, or to neither.
    properties: dict[str, Any] = {**ISOLATION, **ingress.properties}
    properties["bootstrap.servers"] = ingress.address
    # librdkafka insists on a group, even for clients that use none.
    properties["group.id"] = ingress.consumer_group_id or "statefun"
    properties["enable.auto.commit"] = False
    return properties


def admin_client(ingress: KafkaIngress) -> AdminClient:
    """Return a client that asks the ingress's cluster about topics and partitions."""
    properties = client_properties(ingress)
    del properties["group.id"], properties["enable.auto.commit"]
    return connect(AdminClient, ingress.label, properties)


def reads_committed(ingress: KafkaIngress) -> bool:
    """Return whether an ingress reads committed records only, as it does by default."""
    isolation = {**ISOLATION, **ingress.properties}["isolation.level"]
    return bool(isolation == ISOLATION["isolation.level"])


def readable_watermarks(
    ingress: KafkaIngress, partitions: Iterable[tuple[str, int]], timeout: timedelta
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return for each partition its first offset, and the offset before which the ingress can read.

    Raises:
        KafkaException: if the cluster does not return all offsets.
    """
    admin = admin_client(ingress)
    return watermarks(admin, partitions, timeout, committed=reads_committed(ingress))


def check_topics(ingress: KafkaIngress, timeout: timedelta) -> dict[str, list[int]]:
    """Check that the topics and partitions of ``ingress`` exist; return the partitions of every topic.

    Raises:
        KafkaError: if no broker answers within ``timeout``.
        TopicError: if a topic, or a partition that the ingress lists, does not exist.
    """
    owner = ingress.label
    metadata = cluster_metadata(owner, ingress.address, admin_client(ingress), timeout)
    return partitions_to_read(ingress, metadata)


def starting_offsets(
    ingress: KafkaIngress, partitions: Mapping[str, Sequence[int]], timeout: timedelta
) -> dict[str, dict[str, int]]:
    """Return the offsets at which an ingress starts on a fresh checkpoint, in the form of Spark's Kafka source.

    The result has the offsets by topic and partition; -2 stands for the earliest record, and -1 for the next
    record that is written.

    Raises:
        KafkaError: if the cluster does not return the offsets within ``timeout``.
    """
    all_partitions = [KafkaPartition(t, p) for t, numbers in partitions.items() for p in numbers]
    match ingress.startup_position:
        case FromEarliest():
            chosen_offsets = {_partition(p): EARLIEST for p in all_partitions}
        case FromLatest():
            chosen_offsets = {_partition(p): LATEST for p in all_partitions}
        case _:
            chosen_offsets = _resolved_offsets(ingress, all_partitions, timeout)
    offsets: dict[str, dict[str, int]] = {}
    for key, offset in chosen_offsets.items():
        offsets.setdefault(key.topic, {})[str(key.partition)] = offset
    return offsets


def later_starts(
    ingress: KafkaIngress,
    partitions: Mapping[str, Sequence[int]],
    read: Mapping[str, Mapping[str, int]] | None,
    former_topics: Sequence[str] | None,
    timeout: timedelta,
) -> dict[str, dict[str, int]]:
    """Return the starting offsets of topics that an ingress did not read before, on a checkpoint that is not fresh.

    Args:
        ingress: the ingress.
        partitions: its partitions by topic.
        read: the offsets up to which the checkpoint has read the ingress, by topic and partition; None if the
            ingress is new.
        former_topics: the names and patterns of topics that the ingress declared at the last start; None if
            they are not known.
        timeout: how long the cluster may take to answer.

    Returns:
        The offsets by topic and partition, all as numbers of records: of all topics of a new ingress, and of
        the topics that the ingress names now and did not declare before. Other topics, such as those that match
        a pattern, are read from their first record: they may have been created while no run was there to notice.

    Raises:
        KafkaError: if the cluster does not return the offsets within ``timeout``.
    """
    names = {
        route.topic
        for route in ingress.topics
        if not route.is_pattern
        and former_topics is not None
        and not any(_has_taken(each, route.topic) for each in former_topics)
    }
    new_topics = {
        topic: numbers
        for topic, numbers in partitions.items()
        if read is None or (topic not in read and topic in names)
    }
    if not new_topics:
        return {}
    offsets = starting_offsets(ingress, partitions, timeout)
    all_partitions = [(topic, number) for topic in new_topics for number in new_topics[topic]]
    failure = f"{ingress.label}: the offsets to start from could not be read from {ingress.address}"
    with raising_kafka_errors(failure):
        readable = readable_watermarks(ingress, all_partitions, timeout)
    starts: dict[str, dict[str, int]] = {}
    for topic, number in all_partitions:
        start = as_number(offsets[topic][str(number)], *readable[topic, number])
        starts.setdefault(topic, {})[str(number)] = start
    return starts


def _has_taken(former: str, topic: str) -> bool:
    """Return whether a name or pattern that an ingress has declared before takes a topic.

    >>> _has_taken("orders.v1", "orders-v1"), _has_taken("(?i)orders.*", "Orders-v1")
    (False, True)
    """
    if _TOPIC_NAME.fullmatch(former):  # a checkpoint does not store whether a name was a pattern
        return former == topic
    return re.fullmatch(former, topic) is not None


def as_number(offset: int, first: int, end: int) -> int:
    """Return the offset of a record for an offset that may be -2 (the earliest) or -1 (the next that is written).

    Args:
        offset: the offset.
        first: the offset of the partition's first record.
        end: the offset of the record that is written next.

    >>> as_number(EARLIEST, 3, 9), as_number(LATEST, 3, 9), as_number(5, 3, 9)
    (3, 9, 5)
    """
    return {EARLIEST: first, LATEST: end}.get(offset, offset)


def _resolved_offsets(
    ingress: KafkaIngress, all_partitions: list[KafkaPartition], timeout: timedelta
) -> dict[TopicPartition, int]:
    """Return the starting offsets for a startup position that only the cluster can convert to offsets.

    Such a position is a date, the committed offsets of a consumer group, or a list of specific offsets.
    """
    is_dated = isinstance(ingress.startup_position, FromDate)
    # The offset of a date is out of range only if the first records after the date were deleted meanwhile.
    is_latest = ingress.auto_offset_reset is AutoOffsetReset.LATEST and not is_dated
    reset = LATEST if is_latest else EARLIEST
    failure = f"{ingress.label}: the offsets to start from could not be read from {ingress.address}"
    with raising_kafka_errors(failure):
        wanted_offsets = _wanted_offsets(ingress, all_partitions, timeout)
        # A negative offset: the group has committed none.
        partitions = [
            (key.topic, key.partition) for key, offset in wanted_offsets.items() if offset >= 0
        ]
        # Records after the beginning of an open transaction exist, although nobody can read them yet.
        existing = watermarks(admin_client(ingress), partitions, timeout, committed=False)
        readable = readable_watermarks(ingress, partitions, timeout)
    chosen_offsets = {}
    for key, offset in wanted_offsets.items():
        first, end = existing.get((key.topic, key.partition), (0, -1))
        chosen_offsets[key] = offset if first <= offset <= end else reset
        if chosen_offsets[key] >= 0:
            _check_readable(ingress, key, offset, readable[key.topic, key.partition][1])
    return chosen_offsets


def _wanted_offsets(
    ingress: KafkaIngress, all_partitions: list[KafkaPartition], timeout: timedelta
) -> dict[TopicPartition, int]:
    """Return by partition the offset that the startup position asks for, even if the partition lacks it.

    A negative number stands for no offset: the consumer group has committed none. If no record has the date or a later
    one, the offset is the present end: Spark would find the end later, and leave out records that come until then.
    """
    position = ingress.startup_position
    if isinstance(position, FromDate):
        places = [(p.topic, p.partition) for p in all_partitions]
        # First of all, so that a record which comes before the next question is not left out.
        ends = readable_watermarks(ingress, places, timeout)
        admin = admin_client(ingress)
        dated = dated_offsets(admin, places, position.date, timeout, committed=False)
        return {
            TopicPartition(*place): offset if offset >= 0 else ends[place][1]
            for place, offset in dated.items()
        }
    if ingress.consumer_group_id is not None:
        all_partitions = _group_offsets(ingress, all_partitions, timeout)
    offsets = {_partition(p): p.offset for p in all_partitions}
    if isinstance(position, FromSpecificOffsets):
        warn_of_other_partitions(ingress, "startupPosition", position.offsets, offsets)
        offsets.update({key: o for key, o in position.offsets.items() if key in offsets})
    return offsets


def _group_offsets(
    ingress: KafkaIngress, partitions: list[KafkaPartition], timeout: timedelta
) -> list[KafkaPartition]:
    with closing(connect(Consumer, ingress.label, client_properties(ingress))) as consumer:
        return committed_offsets(consumer, partitions, timeout)


def warn_of_other_partitions(
    ingress: KafkaIngress,
    key: str,
    offsets: Iterable[TopicPartition],
    read_partitions: Container[TopicPartition],
) -> None:
    """Log a warning if a key of the module file lists partitions that the ingress does not read."""
    other_partitions = [
        f"{each.topic}/{each.partition}" for each in offsets if each not in read_partitions
    ]
    if other_partitions:
        logger.warning(
            "ingress %s: its %s lists %s, which the ingress does not read; these offsets have no effect",
            ingress.id,
            key,
            ", ".join(other_partitions),
        )


def _partition(partition: KafkaPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _check_readable(ingress: KafkaIngress, key: TopicPartition, offset: int, readable: int) -> None:
    """Check that a starting offset is not after the beginning of an open transaction.

    Raises:
        KafkaError: if records before the offset are in an open transaction.
    """
    if offset > readable:
        raise KafkaError(
            f"{ingress.label}: the starting offset is {offset} in topic {key.topic}, "
            f"partition {key.partition}, and a transaction is open since offset {readable}; start "
            "again when the transaction has ended, or set the property isolation.level to read_uncommitted"
        )
