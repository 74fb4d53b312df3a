# SPDX-License-Identifier: Apache-2.0
"""Commits offsets to Kafka's consumer groups, so that tools which show a group's lag see the application.

The checkpoint alone decides where an application reads on. The groups' offsets are for people and tools, and
can be the startup position of a later, fresh checkpoint.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import attrs
from confluent_kafka import Consumer, KafkaException, TopicPartition

from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog, within_stops
from statefun.runtime.ingress.starting_offsets import client_properties
from statefun.runtime.ingress.stopping import Offsets
from statefun.runtime.kafka.client import connect, reason_of

logger = logging.getLogger("statefun.ingress")

_LAST_COMMIT_PATIENCE = timedelta(seconds=5)
"""How long an application that ends waits until the last offsets of all groups are committed."""


@attrs.define
class Commits:
    """How many commits of an ingress's offsets to its consumer group have succeeded and failed."""

    succeeded: int = 0
    failed: int = 0
    offsets: Offsets = attrs.field(factory=dict)
    """The offsets of the newest commit that succeeded, by topic and partition."""


class GroupOffsets:
    """Commits the offsets of committed batches to the consumer group of each ingress.

    Threads in the background commit them, so that a group without a coordinator delays nothing else.
    """

    def __init__(
        self,
        ingresses: Sequence[KafkaIngress],
        stops: Sequence[Offsets | None],
        commit_log: CommitLog,
    ) -> None:
        self._stops = stops
        self._commit_log = commit_log
        self._groups = [
            _Group(ingress) if ingress.consumer_group_id and ingress.commit_offsets else None
            for ingress in ingresses
        ]
        self.commits = [group.commits if group else Commits() for group in self._groups]
        """The commits of each ingress, in the order of the ingresses."""

    def commit(self, batch: int) -> None:
        """Commit the end offsets of ``batch``, which Spark has committed, to the consumer groups.

        If a cluster does not accept the offsets, a warning is logged; the next batch commits newer offsets.
        """
        ends = self._commit_log.end_offsets(batch)
        for group, stops, end in zip(self._groups, self._stops, ends, strict=False):
            if group is not None and end is not None:
                group.commit(end if stops is None else within_stops(end, stops))

    def close(self) -> None:
        """Commit the newest offsets if the clusters answer within a few seconds, and close the connections."""
        groups = [group for group in self._groups if group is not None]
        for group in groups:
            group.stop()
        deadline = time.monotonic() + _LAST_COMMIT_PATIENCE.total_seconds()
        for group in groups:
            group.join(deadline)


class _Group:
    """The consumer group of an ingress, with a thread that commits the newest offsets to the group."""

    def __init__(self, ingress: KafkaIngress) -> None:
        self.commits = Commits()
        self._ingress = ingress
        # No member ever joins the group: Kafka takes offsets from outside only then.
        self._consumer: Consumer = connect(Consumer, ingress.label, client_properties(ingress))
        self._newest: Offsets | None = None
        self._is_stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name=f"statefun-group-{ingress.id}", daemon=True
        )
        self._thread.start()

    def commit(self, offsets: Offsets) -> None:
        """Pass offsets to the group's thread; they replace older offsets that it has not committed yet."""
        with self._changed:
            self._newest = offsets
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the thread end once it has tried to commit the offsets that it has been given."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the end of the thread until ``deadline`` (in seconds of the monotonic clock)."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            logger.warning(
                "ingress %s: the last offsets of consumer group %s may not be committed: the cluster did not "
                "answer in time; nothing is lost, since the checkpoint has the offsets",
                self._ingress.id,
                self._ingress.consumer_group_id,
            )

    def _run(self) -> None:
        while (offsets := self._next()) is not None:
            self._commit(offsets)
        self._consumer.close()

    def _next(self) -> Offsets | None:
        """Wait for offsets to commit, and return them; return None if the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self._is_stopped)
            offsets, self._newest = self._newest, None
            return offsets

    def _commit(self, offsets: Offsets) -> None:
        partitions = [
            TopicPartition(topic, int(partition), offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        ]
        try:
            self._consumer.commit(offsets=partitions, asynchronous=False)
        except KafkaException as error:
            self.commits.failed += 1
            logger.warning(
                "ingress %s: offsets of consumer group %s could not be committed, and tools show "
                "an older position until the next commit: %s",
                self._ingress.id,
                self._ingress.consumer_group_id,
                reason_of(error).str(),
            )
        else:
            self.commits.offsets = offsets
            self.commits.succeeded += 1
