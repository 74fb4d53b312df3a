# SPDX-License-Identifier: Apache-2.0
"""Commits consumer-group offsets, so that every lag tool sees the application.

The checkpoint alone decides where to read on; these offsets only inform, and serve as the
startup position of a later, fresh checkpoint.
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

_FAREWELL = timedelta(seconds=5)
"""How long groups may take to commit their last offsets when an application ends."""


@attrs.define
class Commits:
    """The commits of one ingress."""

    succeeded: int = 0
    failed: int = 0
    offsets: Offsets = attrs.field(factory=dict)
    """The newest offsets, by topic and partition."""


class GroupOffsets:
    """Commits the offsets of committed batches to each ingress's consumer group.

    It works in the background, so that a group without a coordinator delays nothing else.
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
        """The commits of each ingress."""

    def commit(self, batch: int) -> None:
        """Commit the end offsets of ``batch``, which is a committed batch.

        If a cluster refuses them, that is logged, and the next batch commits its own.
        """
        ends = self._commit_log.end_offsets(batch)
        for group, stops, end in zip(self._groups, self._stops, ends, strict=False):
            if group is not None and end is not None:
                group.commit(end if stops is None else within_stops(end, stops))

    def close(self) -> None:
        """Close the connections; offsets that wait are committed if the clusters answer within a few seconds."""
        groups = [group for group in self._groups if group is not None]
        for group in groups:
            group.stop()
        deadline = time.monotonic() + _FAREWELL.total_seconds()
        for group in groups:
            group.join(deadline)


class _Group:
    """The consumer group of an ingress, with a thread that commits the newest offsets to it."""

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
        """Pass offsets to the thread; they replace older offsets that wait."""
        with self._changed:
            self._newest = offsets
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread when the waiting offsets are committed, or refused."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the end of the thread until ``deadline``, in monotonic seconds."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            logger.warning(
                "ingress %s: offsets of consumer group %s may not be committed: the cluster did not "
                "answer in time; the checkpoint has the offsets",
                self._ingress.id,
                self._ingress.consumer_group_id,
            )

    def _run(self) -> None:
        while (offsets := self._next()) is not None:
            self._commit(offsets)
        self._consumer.close()

    def _next(self) -> Offsets | None:
        """Wait for offsets; return None when none are left and no more will come."""
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
                "ingress %s: offsets of consumer group %s could not be committed: %s",
                self._ingress.id,
                self._ingress.consumer_group_id,
                reason_of(error).str(),
            )
        else:
            self.commits.offsets = offsets
            self.commits.succeeded += 1
