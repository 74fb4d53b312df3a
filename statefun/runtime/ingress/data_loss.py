# SPDX-License-Identifier: Apache-2.0
"""Finding out that records are gone before they were read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from confluent_kafka import Consumer, KafkaException, TopicPartition

from statefun.runtime.ingress.startup import client_properties
from statefun.runtime.kafka_client import connect
from statefun.sdk.errors import KafkaError
from statefun.spec.model import KafkaIngress


def check_kept(
    ingress: KafkaIngress, read: Mapping[str, Mapping[str, int]], timeout: timedelta
) -> None:
    """Check that what comes next is still there.

    Args:
        ingress: what is read.
        read: the next offset by topic and partition, as Spark's Kafka source has it.
        timeout: how long the cluster may take to answer.

    Raises:
        KafkaError: if it is not, or the cluster does not tell.
    """
    consumer = connect(Consumer, f"ingress {ingress.id}", client_properties(ingress))
    try:
        for topic, partitions in read.items():
            for number, following in partitions.items():
                partition = TopicPartition(topic, int(number))
                first, _ = consumer.get_watermark_offsets(partition, timeout.total_seconds())
                if first > following:
                    raise KafkaError(
                        f"ingress {ingress.id}: records of topic {topic}, partition {number}, are "
                        f"gone that were not read yet: the next one was that of offset {following},"
                        f" and the first one there is that of offset {first}; set onDataLoss: "
                        "go-on to leave them out, and keep records for longer"
                    )
    except KafkaException as error:
        raise KafkaError(
            f"ingress {ingress.id}: {ingress.address} does not tell which records it has: "
            f"{error.args[0].str()}"
        ) from error
    finally:
        consumer.close()
