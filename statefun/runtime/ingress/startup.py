# SPDX-License-Identifier: Apache-2.0
"""Where a fresh checkpoint starts to read: one offset for every partition.

Spark's Kafka source knows earliest, latest and explicit offsets only; the rest is looked up
here, by a client that joins no group.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Container
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from statefun.runtime.ingress.subscription import partitions_to_read
from statefun.runtime.kafka_client import (
    cluster_metadata,
    committed_offsets,
    connect,
)
from statefun.sdk.errors import KafkaError
from statefun.spec.model import (
    AutoOffsetReset,
    FromDate,
    FromEarliest,
    FromLatest,
    FromSpecificOffsets,
    KafkaIngress,
    TopicPartition,
)

logger = logging.getLogger("statefun.ingress")

# Spark's words for "wherever that is when the first batch is planned".
EARLIEST, LATEST = -2, -1


def client_properties(ingress: KafkaIngress) -> dict[str, Any]:
    """Return the ingress's properties for a consumer that never joins or commits by itself."""
    # As in Java, and so in Spark's source. librdkafka's own default takes what lies behind the
    # first open transaction for not being there: an offset to start from would be out of range.
    properties: dict[str, Any] = {"isolation.level": "read_uncommitted", **ingress.properties}
    properties["bootstrap.servers"] = ingress.address
    # librdkafka insists on a group, even for clients that use none.
    properties["group.id"] = ingress.consumer_group_id or "statefun"
    properties["enable.auto.commit"] = False
    return properties


def admin_client(ingress: KafkaIngress) -> AdminClient:
    """Return a client that asks the ingress's cluster about itself."""
    properties = client_properties(ingress)
    del properties["group.id"], properties["enable.auto.commit"]
    return connect(AdminClient, f"ingress {ingress.id}", properties)


def check_topics(ingress: KafkaIngress, timeout: timedelta) -> dict[str, list[int]]:
    """Return the partitions of every topic of ``ingress``.

    Raises:
        KafkaError: if no broker answers within ``timeout``.
        TopicError: if one of the topics, or a partition that is listed, does not exist.
    """
    owner = f"ingress {ingress.id}"
    metadata = cluster_metadata(owner, ingress.address, admin_client(ingress), timeout)
    return partitions_to_read(ingress, metadata)


def starting_offsets(
    ingress: KafkaIngress, partitions: dict[str, list[int]], timeout: timedelta
) -> str:
    """Return ``startingOffsets`` for Spark's Kafka source: JSON by topic and partition.

    Raises:
        KafkaError: if the cluster does not tell the offsets within ``timeout``.
    """
    reset = LATEST if ingress.auto_offset_reset is AutoOffsetReset.LATEST else EARLIEST
    every = [KafkaPartition(t, p) for t, numbers in partitions.items() for p in numbers]
    match ingress.startup_position:
        case FromEarliest():
            chosen = {_key(p): EARLIEST for p in every}
        case FromLatest():
            chosen = {_key(p): LATEST for p in every}
        case position:
            consumer = connect(Consumer, f"ingress {ingress.id}", client_properties(ingress))
            seconds = timeout.total_seconds()
            try:
                if isinstance(position, FromDate):
                    millis = round(position.date.timestamp() * 1000)
                    asked = [KafkaPartition(p.topic, p.partition, millis) for p in every]
                    found = consumer.offsets_for_times(asked, timeout=seconds)
                elif ingress.consumer_group_id is None:
                    found = every  # the group that the client has is not the ingress's
                else:
                    found = committed_offsets(consumer, every, timeout)
                for partition in found:
                    if partition.error is not None:
                        raise KafkaException(partition.error)
                chosen = {_key(p): p.offset for p in found}
                if isinstance(position, FromSpecificOffsets):
                    _warn_of_strangers(ingress, position, chosen)
                    chosen.update({key: o for key, o in position.offsets.items() if key in chosen})
                chosen = {
                    key: offset if _in_range(consumer, key, offset, seconds) else reset
                    for key, offset in chosen.items()
                }
            except KafkaException as error:
                raise KafkaError(
                    f"ingress {ingress.id}: the offsets to start from could not be read from "
                    f"{ingress.address}: {error.args[0].str()}"
                ) from error
            finally:
                consumer.close()
    offsets: dict[str, dict[str, int]] = {}
    for key, offset in chosen.items():
        offsets.setdefault(key.topic, {})[str(key.partition)] = offset
    return json.dumps(offsets)


def _warn_of_strangers(
    ingress: KafkaIngress, position: FromSpecificOffsets, known: Container[TopicPartition]
) -> None:
    strangers = [f"{key.topic}/{key.partition}" for key in position.offsets if key not in known]
    if strangers:
        logger.warning(
            "ingress %s: its startupPosition lists %s, which it does not read; left out",
            ingress.id,
            ", ".join(strangers),
        )


def _key(partition: KafkaPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _in_range(consumer: Consumer, key: TopicPartition, offset: int, timeout: float) -> bool:
    if offset < 0:  # nothing committed, or no record at or after the date
        return False
    low, high = consumer.get_watermark_offsets(
        KafkaPartition(key.topic, key.partition), timeout=timeout
    )
    return bool(low <= offset <= high)
