# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, that the dead-letter topics and replay topics of egresses exist."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta

from confluent_kafka.admin._metadata import ClusterMetadata

from statefun.module.model import KafkaEgress
from statefun.runtime.kafka.client import admin_for, cluster_metadata, partitions_of
from statefun.sdk.errors import KafkaError, TopicError

logger = logging.getLogger("statefun.egress")


def declared_topics(egress: KafkaEgress) -> list[str]:
    """Return the dead-letter topic and the replay topic of an egress, if module.yaml names them."""
    return [topic for topic in (egress.dead_letter_topic, egress.replay_topic) if topic]


def check_declared_topics(egress: KafkaEgress, timeout: timedelta) -> ClusterMetadata:
    """Check that the dead-letter and replay topics of an egress exist; return the cluster's metadata.

    Raises:
        KafkaError: if no broker answers within ``timeout``.
        TopicError: if one of the topics does not exist.
    """
    owner = egress.label
    admin = admin_for(owner, egress.address, egress.properties)
    metadata = cluster_metadata(owner, egress.address, admin, timeout)
    for topic in declared_topics(egress):
        partitions_of(owner, topic, metadata, egress.address)
    return metadata


def refuse_missing_topics(egresses: Iterable[KafkaEgress], timeout: timedelta) -> None:
    """Check that the dead-letter and replay topics of egresses exist; warn if a cluster does not answer.

    Raises:
        TopicError: if one of the topics does not exist.
    """
    for egress in egresses:
        if not declared_topics(egress):
            continue
        try:
            check_declared_topics(egress, timeout)
        except TopicError:
            raise
        except KafkaError as error:
            logger.warning(
                "%s; the records of the egress stay in the outbox until a broker answers",
                error.message,
            )
