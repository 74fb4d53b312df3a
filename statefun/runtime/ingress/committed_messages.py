# SPDX-License-Identifier: Apache-2.0
"""Finds the messages between functions, and the timers, that committed micro-batches have sent."""

from __future__ import annotations

from statefun.engine.wheel import PendingBuckets, due_tick
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, has_messages
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.ingress.feedback_offset import FeedbackOffset


class CommittedMessages:
    """The messages and timers of committed micro-batches that the feedback source still has to deliver.

    Only committed batches count: a batch that is not committed may be repeated, and send other messages then.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._timer_log = TimerLog(checkpoint)
        self._newest_commit: int | None = None
        """The newest committed batch whose messages are tracked; None before the first call of :meth:`look`."""
        self._timers = PendingBuckets()
        self._arriving: dict[int, set[int]] = {}
        """The timer buckets to which each batch has sent messages, by batch; delivered batches are dropped."""
        self.newest = -1
        """The newest committed batch that has sent messages; -1 if there is none."""

    def look(self) -> None:
        """Track the messages of batches that were committed since the last call.

        This asks for the commit of each next batch by its name, and lists no folder, except at the first call.
        """
        if self._newest_commit is None:
            newest_commit = self._commit_log.newest()
            for batch in self._outbox.batches():
                if batch <= newest_commit:
                    self._track(batch)
            # After the outbox: a batch leaves it when its buckets are in the log.
            self._timers = self._timer_log.load()
            for buckets in self._arriving.values():
                self._timers.add(buckets)
            self._newest_commit = newest_commit
        while self._commit_log.has(self._newest_commit + 1):
            self._newest_commit += 1
            self._track(self._newest_commit)

    def next_tick(self, start: FeedbackOffset) -> int | None:
        """Return the first tick after ``start`` at which a bucket is due; None if no bucket waits.

        Buckets and batches up to ``start`` are no longer tracked afterwards.
        """
        self._timers.drop(start.tick)
        for batch, buckets in list(self._arriving.items()):
            if batch <= start.batch:
                del self._arriving[batch]
            else:
                self._timers.add(buckets)
        return self._timers.next_tick()

    def due(self, start: FeedbackOffset, end: FeedbackOffset) -> list[int]:
        """Return the buckets that are due by ``end``, and to which no tick up to ``start`` was sent."""
        self.look()
        arriving = {
            bucket
            for batch, buckets in self._arriving.items()
            if start.batch < batch <= end.batch
            for bucket in buckets
            if due_tick(bucket) <= end.tick
        }
        pending = {bucket for bucket in self._timers.due(end.tick) if due_tick(bucket) > start.tick}
        return sorted(arriving | pending)

    def _track(self, batch: int) -> None:
        manifest = self._outbox.manifest(batch)
        if manifest is None:
            return
        if has_messages(manifest):
            self.newest = batch
        buckets = timer_buckets(manifest)
        if buckets:
            self._arriving[batch] = buckets
