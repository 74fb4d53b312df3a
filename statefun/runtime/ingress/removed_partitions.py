# SPDX-License-Identifier: Apache-2.0
"""Finds partitions that an earlier run has read, but that the ingress no longer reads."""

from __future__ import annotations

from collections.abc import Mapping

from statefun.module.model import KafkaIngress, OnDataLoss
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.ingress.declared import REPLAYS
from statefun.sdk.errors import CheckpointError


def removed_partitions(
    ingress: KafkaIngress, read: Mapping[str, Mapping[str, int]]
) -> CheckpointError | None:
    """Return an error if an ingress no longer reads partitions that the checkpoint has read; else None.

    Their unread records would be lost. There is no error if the ingress has ``onDataLoss: go-on``.

    Args:
        ingress: the ingress.
        read: the next offset to read by topic and partition, as in Spark's Kafka source.
    """
    if ingress.on_data_loss is OnDataLoss.GO_ON:
        return None
    unread_partitions = [
        (topic, int(number), offset)
        for topic, offsets in read.items()
        for number, offset in offsets.items()
        if not any(_reads(route, topic, int(number)) for route in ingress.topics)
    ]
    if not unread_partitions:
        return None
    places = ", ".join(
        f"{topic}/{number} from {offset}" for topic, number, offset in sorted(unread_partitions)
    )
    if ingress.id == REPLAYS:
        return CheckpointError(
            f"the replayTopic has changed, and unread records of the former one would be lost ({places}); declare it "
            f"until they are read, or delete their offsets with 'statefun ingress forget' and {REPLAYS}"
        )
    return CheckpointError(
        f"{ingress.label} no longer reads partitions that the checkpoint has read; their unread "
        f"records would be lost ({places}); let the ingress read these partitions until the records are read, or set "
        "onDataLoss: go-on to start without these records"
    )


def _reads(route: TopicRoute, topic: str, number: int) -> bool:
    return route.takes(topic) and (not route.partitions or number in route.partitions)
