# SPDX-License-Identifier: Apache-2.0
"""Keeps a batch in the outbox until its records are published and its messages are delivered."""

from __future__ import annotations

import heapq
from datetime import datetime
from typing import TYPE_CHECKING

from statefun.engine.wheel import date_of
from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Leftovers, Outbox, is_marked, waits_for_delivery
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.ingress.feedback_offset import FeedbackOffset, feedback_offset
from statefun.runtime.spark_internals.configuration import RETAINED
from statefun.sdk.errors import ConfigurationError

if TYPE_CHECKING:  # a command imports this module, and starts faster without Spark
    from pyspark.sql.conf import RuntimeConfig

BACKLOG = 16
"""The largest number of unpublished batches: with this many, staging waits until one is published."""


def check_retained(conf: RuntimeConfig) -> None:
    """Check that Spark keeps the offsets of each batch until the egresses have published the batch.

    Raises:
        ConfigurationError: if Spark keeps the offsets of too few batches.
    """
    retained = int(conf.get(RETAINED, "100") or 0)
    if retained <= BACKLOG:
        raise ConfigurationError(
            f"{RETAINED} must be at least {BACKLOG + 1}, but is {retained}: up to "
            f"{BACKLOG} batches may wait for their egresses, and need their offsets"
        )


class Retention:
    """Deletes published and delivered batches, after writing their timer buckets into the timer log."""

    def __init__(self, checkpoint: Folder) -> None:
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._timer_log = TimerLog(checkpoint)
        self._timers = self._timer_log.recover()
        self._drop(feedback_offset(self._commit_log, self._commit_log.newest()))
        self._undelivered: list[int] = []
        """A heap of the published batches whose messages are not delivered yet; batches of an earlier run may
        have higher numbers than the batch that was published last."""

    def start(self, leftovers: Leftovers) -> None:
        """Take over the published, undelivered batches that earlier runs have left."""
        for batch in leftovers.undelivered:
            heapq.heappush(self._undelivered, batch)

    def published(self, manifest: Manifest) -> None:
        """Register a batch whose egress records are all published; delete it if it has nothing to deliver."""
        if not waits_for_delivery(manifest):
            self._outbox.remove(manifest.batch)
            return
        if is_marked(manifest):
            self._outbox.mark_published(manifest.batch)
        heapq.heappush(self._undelivered, manifest.batch)

    def committed(self, batch: int) -> None:
        """Delete the published batches whose messages ``batch``, or a batch before it, has delivered.

        Args:
            batch: the number of a committed batch.
        """
        if not (self._undelivered or self._timers):
            return
        feedback = feedback_offset(self._commit_log, batch)
        while self._undelivered and self._undelivered[0] <= feedback.batch:
            self._remove(heapq.heappop(self._undelivered), feedback)
        self._drop(feedback)

    def _drop(self, feedback: FeedbackOffset) -> None:
        self._timers.drop(feedback.tick)
        self._timers.drop(feedback.last_event_tick)

    def next_timer(self) -> datetime | None:
        """Return when the next timer is due; None if no timer waits."""
        tick = self._timers.next_tick()
        return None if tick is None else date_of(tick)

    def _remove(self, batch: int, feedback: FeedbackOffset) -> None:
        manifest = self._outbox.manifest(batch) or Manifest()
        buckets = {bucket for bucket in timer_buckets(manifest) if not feedback.has_ticked(bucket)}
        # Including the known buckets: a crash may have left a file of the same batch, which this one replaces,
        # and no other file may have them.
        if any(bucket not in self._timers for bucket in buckets):
            self._timers.add(buckets)
            self._timer_log.add(batch, buckets, self._timers)
        self._outbox.remove(batch)
