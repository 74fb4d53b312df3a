# SPDX-License-Identifier: Apache-2.0
"""Finds the offset of every partition at which a fresh checkpoint starts to read.

Spark's Kafka source knows earliest, latest and explicit offsets only; the rest is looked up
here, by a client that joins no group.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from contextlib import closing
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaException
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
    committed_offsets,
    connect,
    raising_kafka_errors,
    watermarks,
)
from statefun.sdk.errors import KafkaError
from statefun.sdk.times import EPOCH, in_milliseconds

logger = logging.getLogger("statefun.ingress")

ISOLATION = {"isolation.level": "read_committed"}
"""The default, which ignores records of aborted transactions; it changes nothing without any."""

# Spark's numbers for the first and the next offset at the time of the first batch's planning.
EARLIEST, LATEST = -2, -1


def client_properties(ingress: KafkaIngress) -> dict[str, Any]:
    """Return the ingress's properties for a consumer that never joins or commits by itself."""
    # The same level as Spark's source: records behind the first open transaction are visible to
    # both of them, or to neither.
    properties: dict[str, Any] = {**ISOLATION, **ingress.properties}
    properties["bootstrap.servers"] = ingress.address
    # librdkafka insists on a group, even for clients that use none.
    properties["group.id"] = ingress.consumer_group_id or "statefun"
    properties["enable.auto.commit"] = False
    return properties


def admin_client(ingress: KafkaIngress) -> AdminClient:
    """Return a client that asks the ingress's cluster about itself."""
    properties = client_properties(ingress)
    del properties["group.id"], properties["enable.auto.commit"]
    return connect(AdminClient, ingress.label, properties)


def readable_watermarks(
    ingress: KafkaIngress, partitions: Iterable[tuple[str, int]], timeout: timedelta
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first offset of each partition, and the next one that the ingress may read to.

    Raises:
        KafkaException: if the cluster does not return all offsets.
    """
    isolation = {**ISOLATION, **ingress.properties}["isolation.level"]
    committed = isolation == ISOLATION["isolation.level"]
    return watermarks(admin_client(ingress), partitions, timeout, committed=committed)


def check_topics(ingress: KafkaIngress, timeout: timedelta) -> dict[str, list[int]]:
    """Return the partitions of every topic of ``ingress``.

    Raises:
        KafkaError: if no broker answers within ``timeout``.
        TopicError: if one of the topics, or a partition that is listed, does not exist.
    """
    owner = ingress.label
    metadata = cluster_metadata(owner, ingress.address, admin_client(ingress), timeout)
    return partitions_to_read(ingress, metadata)


def starting_offsets(
    ingress: KafkaIngress, partitions: dict[str, list[int]], timeout: timedelta
) -> dict[str, dict[str, int]]:
    """Return the starting offsets by topic and partition, in the form of Spark's Kafka source.

    Raises:
        KafkaError: if the cluster does not return the offsets within ``timeout``.
    """
    every = [KafkaPartition(t, p) for t, numbers in partitions.items() for p in numbers]
    match ingress.startup_position:
        case FromEarliest():
            chosen = {_key(p): EARLIEST for p in every}
        case FromLatest():
            chosen = {_key(p): LATEST for p in every}
        case _:
            chosen = _looked_up(ingress, every, timeout)
    offsets: dict[str, dict[str, int]] = {}
    for key, offset in chosen.items():
        offsets.setdefault(key.topic, {})[str(key.partition)] = offset
    return offsets


def _looked_up(
    ingress: KafkaIngress, every: list[KafkaPartition], timeout: timedelta
) -> dict[TopicPartition, int]:
    """Return the starting offsets that a cluster has to look up."""
    # Records behind an open transaction count, although nobody can read them yet.
    properties = {**client_properties(ingress), "isolation.level": "read_uncommitted"}
    consumer = connect(Consumer, ingress.label, properties)
    reset = LATEST if ingress.auto_offset_reset is AutoOffsetReset.LATEST else EARLIEST
    question = (
        f"{ingress.label}: the offsets to start from could not be read from {ingress.address}"
    )
    with raising_kafka_errors(question), closing(consumer):
        wanted = _wanted(ingress, consumer, every, timeout)
        # Negative offsets: nothing is committed, or no record is at or after the date.
        known = [(key.topic, key.partition) for key, offset in wanted.items() if offset >= 0]
        there = watermarks(admin_client(ingress), known, timeout, committed=False)
        readable = readable_watermarks(ingress, known, timeout)
    chosen = {}
    for key, offset in wanted.items():
        first, end = there.get((key.topic, key.partition), (0, -1))
        chosen[key] = offset if first <= offset <= end else reset
        if chosen[key] >= 0:
            _check_readable(ingress, key, offset, readable[key.topic, key.partition][1])
    return chosen


def _wanted(
    ingress: KafkaIngress, consumer: Consumer, every: list[KafkaPartition], timeout: timedelta
) -> dict[TopicPartition, int]:
    """Return the offsets of the startup position; negative for partitions where it has none."""
    position = ingress.startup_position
    if isinstance(position, FromDate):
        millis = in_milliseconds(position.date - EPOCH)
        asked = [KafkaPartition(p.topic, p.partition, millis) for p in every]
        found = consumer.offsets_for_times(asked, timeout=timeout.total_seconds())
    elif ingress.consumer_group_id is None:
        found = every  # the client's group is not the ingress's
    else:
        found = committed_offsets(consumer, every, timeout)
    for partition in found:
        if partition.error is not None:
            raise KafkaException(partition.error)
    wanted = {_key(p): p.offset for p in found}
    if isinstance(position, FromSpecificOffsets):
        warn_of_strangers(ingress, "startupPosition", position.offsets, wanted)
        wanted.update({key: o for key, o in position.offsets.items() if key in wanted})
    return wanted


def warn_of_strangers(
    ingress: KafkaIngress,
    key: str,
    offsets: Iterable[TopicPartition],
    known: Container[TopicPartition],
) -> None:
    """Warn of partitions that a key lists and the ingress does not read."""
    strangers = [f"{each.topic}/{each.partition}" for each in offsets if each not in known]
    if strangers:
        logger.warning(
            "ingress %s: its %s lists %s, which it does not read; left out",
            ingress.id,
            key,
            ", ".join(strangers),
        )


def _key(partition: KafkaPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _check_readable(ingress: KafkaIngress, key: TopicPartition, offset: int, readable: int) -> None:
    """Check that an offset is not behind an open transaction.

    Raises:
        KafkaError: if records before it are in an open transaction.
    """
    if offset > readable:
        raise KafkaError(
            f"{ingress.label}: it is to start at offset {offset} of topic {key.topic}, "
            f"partition {key.partition}, and a transaction is open since offset {readable}; start "
            "again when that is over, or set the property isolation.level to read_uncommitted"
        )
