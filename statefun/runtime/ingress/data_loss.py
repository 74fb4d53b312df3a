# SPDX-License-Identifier: Apache-2.0
"""Detects records that were deleted before they were read."""

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
    """Check that the next records still exist.

    Args:
        ingress: the ingress that reads them.
        read: the next offset by topic and partition, as in Spark's Kafka source.
        timeout: how long the cluster may take to answer.

    Raises:
        KafkaError: if they do not, or the cluster does not answer.
    """
    following = {
        (topic, int(number)): offset
        for topic, partitions in read.items()
        for number, offset in partitions.items()
    }
    question = f"{ingress.label}: {ingress.address} does not say which records it has"
    with raising_kafka_errors(question):
        there = readable_watermarks(ingress, following, timeout)
    for (topic, number), (first, _) in there.items():
        if first > following[topic, number]:
            raise KafkaError(
                f"{ingress.label}: records of topic {topic}, partition {number}, are gone "
                f"that were not read yet: the next one was that of offset "
                f"{following[topic, number]}, and the first one there is that of offset {first}; "
                "set onDataLoss: go-on to leave them out, and keep records for longer"
            )
