# SPDX-License-Identifier: Apache-2.0
"""Finds the messages of committed micro-batches that wait for delivery, and the buckets that wait for a tick.

The messages are those that functions have sent to functions. The feedback source asks this module what its
next micro-batch has to deliver.
"""

from __future__ import annotations

from statefun.engine.wheel import PendingBuckets, time_of
from statefun.protocol.runtime_pb2 import EventTimes
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, has_messages, waits_for_delivery
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.ingress.feedback_offset import FeedbackOffset

_MOST_BUCKETS = 256
"""How many buckets get a tick of event time in a micro-batch; each holds up to 64 KiB of delayed messages."""


class CommittedMessages:
    """Tracks which messages of committed micro-batches, and which ticks, the feedback source must deliver.

    Only committed batches count: a batch that is not committed may be repeated, and then send other messages.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._timer_log = TimerLog(checkpoint)
        self._newest_commit: int | None = None
        """The newest committed batch whose messages are tracked; None before the first call of :meth:`look`."""
        self._timers = PendingBuckets()
        self._senders: set[int] = set()
        """The batches that have sent messages; delivered batches are removed."""
        self._arriving: dict[int, set[int]] = {}
        """The buckets to which batches have sent messages, by batch; delivered batches are removed."""
        self._event_times: dict[int, EventTimes] = {}
        """What committed batches have found about event time, by batch; batches that have counted are removed."""
        self.newest = -1
        """The newest committed batch that has sent messages, or found event times; -1 if there is none."""

    def look(self) -> None:
        """Track the messages of batches that were committed since the last call.

        Only the first call lists the folder of commits; later calls check only whether the file of the next
        commit exists.
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

    @property
    def newest_commit(self) -> int:
        """The newest committed batch that is tracked; -1 if there is none."""
        return -1 if self._newest_commit is None else self._newest_commit

    def event_times(self, start: FeedbackOffset) -> list[EventTimes]:
        """Return the facts about event time of the committed batches after ``start``.

        Afterwards, this object no longer has the facts of batches up to ``start``.
        """
        self._event_times = {
            batch: found for batch, found in self._event_times.items() if batch > start.batch
        }
        return [*self._event_times.values()]

    def next_tick(self, start: FeedbackOffset) -> int | None:
        """Return the number of the first tick after ``start`` for which a bucket waits; None if none waits.

        Afterwards, this object no longer tracks buckets and batches up to ``start``.
        """
        self._timers.drop(start.tick)
        self._timers.drop(start.last_event_tick)
        for batch, buckets in list(self._arriving.items()):
            if batch <= start.batch:
                del self._arriving[batch]
            else:
                self._timers.add(buckets)
        return self._timers.next_tick()

    def senders(self, start: FeedbackOffset, end: FeedbackOffset) -> list[int]:
        """Return the batches whose messages the micro-batch from ``start`` to ``end`` delivers, in order.

        Afterwards, this object no longer tracks batches up to ``start``.
        """
        self.look()
        self._senders = {batch for batch in self._senders if batch > start.batch}
        return sorted(batch for batch in self._senders if batch <= end.batch)

    def next_event_time(self, start: FeedbackOffset) -> int | None:
        """Return the event time of the first bucket that waits after ``start``, in milliseconds since the epoch.

        The result is None if no bucket waits for event time.
        """
        self.next_tick(start)
        tick = self._timers.next_tick(of_event_time=True)
        return None if tick is None else time_of(tick)

    def opened(self, start: FeedbackOffset, end: FeedbackOffset) -> int | None:
        """Return the last bucket to which the micro-batch up to ``end`` sends a tick of event time.

        The result is None if the micro-batch sends a tick to all buckets that are due. Otherwise it leaves some of them
        for later, so that records do not have to wait for many delayed messages.
        """
        due = [each for each in self._timers.due(end.event_tick) if not start.has_ticked(each)]
        return due[_MOST_BUCKETS - 1] if len(due) > _MOST_BUCKETS else None

    def due(self, start: FeedbackOffset, end: FeedbackOffset) -> list[int]:
        """Return the numbers of the buckets to which the micro-batch from ``start`` to ``end`` sends a tick.

        These buckets are due by the ticks of ``end``, and either were not due by the ticks of ``start``, or get
        messages in this micro-batch.
        """
        self.look()
        arriving = {
            bucket
            for batch, buckets in self._arriving.items()
            if start.batch < batch <= end.batch
            for bucket in buckets
            if end.has_ticked(bucket)
        }
        pending = {
            bucket
            for tick in (end.tick, end.event_tick)
            for bucket in self._timers.due(tick)
            if end.has_ticked(bucket) and not start.has_ticked(bucket)
        }
        return sorted(arriving | pending)

    def _track(self, batch: int) -> None:
        manifest = self._outbox.manifest(batch)
        if manifest is None:
            return
        if waits_for_delivery(manifest):
            self.newest = batch
        if has_messages(manifest):
            self._senders.add(batch)
        if manifest.HasField("event_times"):
            self._event_times[batch] = manifest.event_times
        buckets = timer_buckets(manifest)
        if buckets:
            self._arriving[batch] = buckets
