# SPDX-License-Identifier: Apache-2.0
"""The topics and partitions of an ingress: as an option of Spark's source, and as they exist in a cluster."""

from __future__ import annotations

import json
import logging
import re

from confluent_kafka.admin._metadata import ClusterMetadata

from statefun.module.model import KafkaIngress, OnDataLoss
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.egress.progress_topic import PROGRESS_PREFIX
from statefun.runtime.kafka.client import partitions_of
from statefun.sdk.errors import TopicError

logger = logging.getLogger("statefun.ingress")

_INTERNAL = ("__", PROGRESS_PREFIX)
"""The name prefixes of topics that no pattern matches: Kafka's internal topics, and progress topics."""


def source_option(ingress: KafkaIngress) -> tuple[str, str]:
    """Return the name and value of the option of Spark's Kafka source that selects the ingress's topics."""
    routes = ingress.topics
    if any(route.partitions for route in routes):
        return "assign", json.dumps({route.topic: route.partitions for route in routes})
    # With names instead of a pattern, Spark insists that all topics exist.
    if _may_be_missing(ingress) or any(route.is_pattern for route in routes):
        expressions = [
            f"(?!{'|'.join(_INTERNAL)})(?:{route.topic})"
            if route.is_pattern
            else re.escape(route.topic)
            for route in routes
        ]
        # Each in a separate group, so that the flags of one expression do not apply to the others;
        # anchored, since Spark takes topics that have a match anywhere in their names.
        return "subscribePattern", f"^(?:(?:{')|(?:'.join(expressions)}))$"
    return "subscribe", ",".join(route.topic for route in routes)


def partitions_to_read(ingress: KafkaIngress, metadata: ClusterMetadata) -> dict[str, list[int]]:
    """Return the numbers of the partitions in a cluster that ``ingress`` reads, by topic.

    Raises:
        TopicError: if a topic or a partition that the ingress names does not exist.
    """
    owner = ingress.label
    partitions = {}
    for route in ingress.topics:
        if route.is_pattern:
            continue
        if route.topic not in metadata.topics and _may_be_missing(ingress):
            logger.warning(
                "%s: topic %s does not exist; if it is created later, it will be read",
                owner,
                route.topic,
            )
        else:
            partitions[route.topic] = _partitions_of_route(owner, route, metadata, ingress.address)
    for route in ingress.topics:
        if route.is_pattern:
            matching = _matching(route, metadata)
            if not matching:
                logger.warning(
                    "%s: no topic matches the pattern %s yet; a topic that is created later will be read",
                    owner,
                    route.topic,
                )
            for topic in matching:
                partitions.setdefault(topic, partitions_of(owner, topic, metadata, ingress.address))
    return partitions


def _may_be_missing(ingress: KafkaIngress) -> bool:
    """Return whether an ingress may start although topics that it names do not exist."""
    has_partitions = any(route.partitions for route in ingress.topics)
    return ingress.on_data_loss is OnDataLoss.GO_ON and not has_partitions


def _matching(route: TopicRoute, metadata: ClusterMetadata) -> list[str]:
    return [
        topic
        for topic in sorted(metadata.topics)
        if route.takes(topic) and not topic.startswith(_INTERNAL)
    ]


def _partitions_of_route(
    owner: str, route: TopicRoute, metadata: ClusterMetadata, address: str
) -> list[int]:
    existing = partitions_of(owner, route.topic, metadata, address)
    missing_partitions = [str(number) for number in route.partitions if number not in existing]
    if missing_partitions:
        raise TopicError(
            f"{owner}: topic {route.topic} at {address} has no partition {', '.join(missing_partitions)}; it "
            f"has {len(existing)}, numbered from 0"
        )
    return sorted(route.partitions) or existing
