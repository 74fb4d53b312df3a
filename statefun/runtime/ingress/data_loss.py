# SPDX-License-Identifier: Apache-2.0
"""Detects that Kafka has deleted records before an ingress has read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.starting_offsets import readable_watermarks
from statefun.runtime.kafka.client import raising_kafka_errors
from statefun.sdk.errors import KafkaError


def check_kept(
    ingress: KafkaIngress, read: Mapping[str, Mapping[str, int]], timeout: timedelta
) -> None:
    """Check that the next record to read of each partition was not deleted.

    Args:
        ingress: the ingress that reads the records.
        read: the next offset to read by topic and partition, as in Spark's Kafka source.
        timeout: how long the cluster may take to answer.

    Raises:
        KafkaError: if records were deleted before they were read, or the cluster does not answer.
    """
    next_offsets = {
        (topic, int(number)): offset
        for topic, partitions in read.items()
        for number, offset in partitions.items()
    }
    failure = f"{ingress.label}: {ingress.address} does not return the offsets of its records"
    with raising_kafka_errors(failure):
        readable = readable_watermarks(ingress, next_offsets, timeout)
    for (topic, number), (first, _) in readable.items():
        if first > next_offsets[topic, number]:
            raise KafkaError(
                f"{ingress.label}: records of topic {topic}, partition {number}, were "
                f"deleted before they were read: the next offset to read is "
                f"{next_offsets[topic, number]}, and the first record in the cluster has offset {first}; "
                "set onDataLoss: go-on to continue without the deleted records, and let the cluster keep records for longer"
            )
