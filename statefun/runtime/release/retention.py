# SPDX-License-Identifier: Apache-2.0
"""Keeps a batch in the outbox until it is published and its messages are delivered."""

from __future__ import annotations

import heapq
from datetime import datetime

from pyspark.sql.conf import RuntimeConfig

from statefun.engine.wheel import date_of, due_tick
from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Leftovers, Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.spark_internals.configuration import RETAINED
from statefun.sdk.errors import ConfigurationError

BACKLOG = 16
"""With so many unpublished batches, staging waits until one of them is published."""


def check_retained(conf: RuntimeConfig) -> None:
    """Check that Spark keeps the offsets of batches for as long as they may wait for egresses.

    Raises:
        ConfigurationError: if Spark keeps fewer batches.
    """
    retained = int(conf.get(RETAINED, "100") or 0)
    if retained <= BACKLOG:
        raise ConfigurationError(
            f"{RETAINED}={retained} would delete offsets that are still needed: up to "
            f"{BACKLOG} batches may wait for their egresses; set it to {BACKLOG + 1} or more"
        )


class Retention:
    """Deletes batches in order; first it writes their timer buckets into the log of timers."""

    def __init__(self, checkpoint: Folder) -> None:
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._timer_log = TimerLog(checkpoint)
        self._timers = self._timer_log.recover()
        self._timers.drop(feedback_offset(self._commit_log, self._commit_log.newest()).tick)
        self._undelivered: list[int] = []
        """A heap: batches of an earlier run may be newer than those that are published now."""

    def start(self, leftovers: Leftovers) -> None:
        """Go on with the batches that an earlier run has left."""
        for batch in leftovers.undelivered:
            heapq.heappush(self._undelivered, batch)

    def published(self, manifest: Manifest) -> None:
        """Record that a batch's egress records, if any, are published."""
        if not any(segment.messages.records for segment in manifest.segments):
            self._outbox.remove(manifest.batch)
            return
        if any(segment.egress for segment in manifest.segments):
            self._outbox.mark_published(manifest.batch)
        heapq.heappush(self._undelivered, manifest.batch)

    def committed(self, batch: int) -> None:
        """Delete the batches whose messages ``batch`` or one before it has delivered."""
        if not (self._undelivered or self._timers):
            return
        feedback = feedback_offset(self._commit_log, batch)
        while self._undelivered and self._undelivered[0] <= feedback.batch:
            self._remove(heapq.heappop(self._undelivered), feedback.tick)
        self._timers.drop(feedback.tick)

    def next_timer(self) -> datetime | None:
        """Return when the next timer is due, if there are any."""
        tick = self._timers.next_tick()
        return None if tick is None else date_of(tick)

    def _remove(self, batch: int, tick: int) -> None:
        manifest = self._outbox.manifest(batch) or Manifest()
        buckets = {bucket for bucket in timer_buckets(manifest) if due_tick(bucket) > tick}
        # Including the known buckets: a crash may have left a file of the same batch, which this one replaces,
        # and no other file may have them.
        if any(bucket not in self._timers for bucket in buckets):
            self._timers.add(buckets)
            self._timer_log.add(batch, buckets, self._timers)
        self._outbox.remove(batch)
