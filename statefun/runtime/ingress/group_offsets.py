# SPDX-License-Identifier: Apache-2.0
"""Committing consumer-group offsets, so that every lag tool sees the application.

The checkpoint alone decides where to read on; these offsets only inform, and serve as the
startup position of a later, fresh checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs
from confluent_kafka import Consumer, KafkaException, TopicPartition

from statefun.runtime.commit_log import CommitLog, capped
from statefun.runtime.ingress.startup import client_properties
from statefun.runtime.ingress.stopping import Offsets
from statefun.runtime.kafka_client import connect
from statefun.spec.model import KafkaIngress

logger = logging.getLogger("statefun.ingress")


@attrs.define
class Commits:
    """What was committed for one ingress."""

    succeeded: int = 0
    failed: int = 0
    offsets: dict[str, dict[str, int]] = attrs.field(factory=dict)
    """The newest ones, by topic and partition."""


class GroupOffsets:
    """Commits the offsets of committed batches to each ingress's consumer group."""

    def __init__(
        self,
        ingresses: Sequence[KafkaIngress],
        stops: Sequence[Offsets | None],
        commit_log: CommitLog,
    ) -> None:
        self._ingresses = ingresses
        self._stops = stops
        self.commits = [Commits() for _ in ingresses]
        """How it went, for each ingress."""
        self._commit_log = commit_log
        # No member ever joins the groups: Kafka takes offsets from outside only then.
        self._consumers = [
            connect(Consumer, f"ingress {ingress.id}", client_properties(ingress))
            if ingress.consumer_group_id and ingress.commit_offsets
            else None
            for ingress in ingresses
        ]

    def commit(self, batch: int) -> None:
        """Commit up to where ``batch``, a committed one, has read.

        A cluster that refuses is reported and asked again with the next batch.
        """
        ends = self._commit_log.end_offsets(batch)
        sources = zip(
            self._ingresses, self._stops, self._consumers, self.commits, ends, strict=False
        )
        for ingress, stops, consumer, commits, end in sources:
            if consumer is None or end is None:
                continue
            read = end if stops is None else capped(end, stops)
            offsets = [
                TopicPartition(topic, int(partition), offset)
                for topic, partitions in read.items()
                for partition, offset in partitions.items()
            ]
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
                commits.succeeded += 1
                commits.offsets = read
            except KafkaException as error:
                commits.failed += 1
                logger.warning(
                    "ingress %s: offsets of consumer group %s could not be committed: %s",
                    ingress.id,
                    ingress.consumer_group_id,
                    error.args[0].str(),
                )

    def close(self) -> None:
        """Let go of the connections."""
        for consumer in self._consumers:
            if consumer is not None:
                consumer.close()
