# SPDX-License-Identifier: Apache-2.0
"""The log of timer buckets that wait for their tick: the folder ``timers`` of the checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from statefun.engine.wheel import PendingBuckets
from statefun.protocol.runtime_pb2 import Manifest
from statefun.protocol.runtime_pb2 import PendingBuckets as Stored
from statefun.runtime.checkpoint.batch_log import BatchLog
from statefun.runtime.checkpoint.folder import Folder

_LOG_LENGTH = 100
"""The number of additions to the log after which a snapshot of all buckets replaces them."""


def timer_buckets(manifest: Manifest) -> set[int]:
    """Return the timer buckets to which functions have sent messages in a batch."""
    return {bucket for segment in manifest.segments for bucket in segment.buckets}


class TimerLog:
    """The durable log of the timer buckets that wait for their tick, by the micro-batch that has added them.

    The log may have buckets that no longer wait.
    Only one object may write; others may read at any time, in other threads or processes.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._log = BatchLog(checkpoint, "timers")

    def exists(self) -> bool:
        """Return whether the log has any file."""
        return self._log.exists()

    def load(self) -> PendingBuckets:
        """Return the buckets in the log: all that wait for their tick, perhaps also some whose tick has come."""
        pending = PendingBuckets()
        for stored in self._log.load(Stored):
            pending.add(itertools.accumulate(stored.steps))
        return pending

    def recover(self) -> PendingBuckets:
        """Flush the log to the disk, and return its buckets; the object that writes the log calls this first.

        A batch leaves the outbox when its buckets are in the log; if their file were lost, they would never get
        a tick.
        """
        self._log.flush()
        return self.load()

    def add(self, batch: int, buckets: Collection[int], pending: PendingBuckets) -> None:
        """Write the ``buckets`` that ``batch`` has added into the log.

        Args:
            batch: the number of the batch.
            buckets: the buckets that it has added.
            pending: all buckets that wait for their tick, including ``buckets``; for a snapshot.
        """
        if self._log.additions + 1 < _LOG_LENGTH:
            self._log.add(batch, _encoded(buckets))
        else:
            self._log.replace(batch, _encoded(pending.all()))


def _encoded(buckets: Collection[int]) -> Stored:
    ordered = sorted(buckets)
    steps = [bucket - previous for previous, bucket in itertools.pairwise([0, *ordered])]
    return Stored(steps=steps)
