# SPDX-License-Identifier: Apache-2.0
"""The feedback source: messages to functions that come from functions, timers and inboxes.

The offset of this streaming source has the number of a batch, the number of a timer tick, and for each inbox
the number of a message: all messages up to these numbers are delivered. Only committed batches count, since
a batch that is repeated may send other messages. The offset does not change while no message is sent or
accepted and no timer is due: an idle application runs no batches.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from statefun.engine.clock import Clock
from statefun.engine.watermark import EventProgress, without_event_time
from statefun.engine.wheel import due_tick, is_of_event_time, tick_of, time_of
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.inbox import AcceptedMessage, Inbox
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.store_errors import StoreError
from statefun.runtime.ingress.committed_messages import CommittedMessages
from statefun.runtime.ingress.event_watch import EventWatch
from statefun.runtime.ingress.feedback_offset import FeedbackOffset, feedback_offset
from statefun.runtime.ingress.feedback_tasks import (
    FeedbackTasks,
    message_streams,
    read_feedback_task,
)
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.runtime.spark_internals.driver_source import Offset, Source, planned_tasks
from statefun.sdk.errors import CheckpointError
from statefun.sdk.times import from_epoch_millis

logger = logging.getLogger("statefun")

_NAME = "statefun-feedback"
_LOOK = timedelta(milliseconds=20)
"""How long a bounded run waits before it checks again whether the results of long calls have come."""


def read_feedback(
    session: SparkSession,
    checkpoint: Folder,
    reader: Source,
    failed: Callable[[Exception], None],
) -> DataFrame:
    """Return the rows of the feedback source: messages between functions, messages of inboxes, and ticks.

    Args:
        session: the Spark session.
        checkpoint: the query's checkpoint.
        reader: decides what each micro-batch delivers.
        failed: is called with the exception if planning a micro-batch of this source fails.
    """
    outbox = Outbox(checkpoint)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read_feedback_task(outbox, task)

    return planned_tasks(session, _NAME, reader, failed).mapInArrow(read, ROW_SCHEMA)


class FeedbackReader:
    """Decides which messages of committed batches and inboxes, and which ticks, a micro-batch delivers.

    Args:
        checkpoint: the query's checkpoint.
        clock: gives the present time, to find the buckets that are due.
        inboxes: the inboxes, by their names in the source's offset.
        watch: computes the progress of event time; None if no ingress declares event time.
        delivers: returns whether the next micro-batch may deliver anything.
        is_held: returns whether reading is held, because messages wait, and a bounded run has records left to read.
        reads_on: returns whether the ingresses have records for the next micro-batch of a bounded run.
        is_outdated: returns whether the ingresses may read more, or less, than when the next micro-batch's plan began.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all but the first two are seldom given
        self,
        checkpoint: Folder,
        clock: Clock,
        inboxes: Mapping[str, Inbox] | None = None,
        watch: EventWatch | None = None,
        delivers: Callable[[], bool] = lambda: True,
        is_held: Callable[[], bool] = lambda: False,
        reads_on: Callable[[], bool] = lambda: False,
        is_outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        self._watch = watch
        self._checkpoint = checkpoint
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._committed = CommittedMessages(checkpoint)
        self._clock = clock
        self._inboxes = inboxes or {}
        self._delivers = delivers
        self._is_held = is_held
        self._reads_on = reads_on
        self._is_outdated = is_outdated
        self.looks = 0
        """How often a micro-batch was planned, or found to be not needed."""
        self.busy_look = 0
        """The number of the last look at which there was something to deliver."""
        self._durable = [name for name, inbox in self._inboxes.items() if inbox.is_durable]
        self._forgotten = dict.fromkeys(self._durable, 0)
        """By inbox: the number of the last message that the inbox was asked to delete."""
        self._is_bounded = False
        self._has_warned = False
        """Whether the log has a line about messages that wait for an event time that does not come."""
        self._is_stopped = threading.Event()

    def initial_offset(self) -> Offset:
        """Return the offset before the first batch and tick."""
        return FeedbackOffset().encode()

    def latest_offset(self, start: Offset) -> Offset:
        """Return the end offset of the next micro-batch; ``start`` if it has nothing to deliver.

        In a bounded run, first wait for messages while an inbox expects results of long calls, or while
        reading is held, unless the ingresses have records for the micro-batch. If an ingress is resumed meanwhile, plan
        a micro-batch without messages: the ingress reads in the one after it.

        Raises:
            CheckpointError: if another driver has taken over the checkpoint: it plans the next micro-batch.
        """
        for inbox in self._inboxes.values():
            inbox.open()
        latest = self._latest(start)
        if latest == start and self._may_wait() and not self._reads_on():
            while latest == start and self._may_wait():
                if self._is_stopped.wait(_LOOK.total_seconds()):
                    return start
                latest = self._latest(start, is_needed=self._is_outdated())
        self.looks += 1
        if latest != start:
            self.busy_look = self.looks
        return latest

    def _latest(self, start: Offset, *, is_needed: bool = False) -> Offset:
        """Return the end offset up to which the next micro-batch can deliver messages after ``start``.

        The offset changes only if messages wait, a timer is due, or the micro-batch is needed for another reason. The
        new offset has the tick of the present time. If the clock was set back, this tick is earlier than the tick of
        ``start``, and still no delayed message is missed: a delayed message is either due when it is delivered, or it
        waits in a bucket whose tick is later than the tick of the new offset.
        """
        if not self._delivers():
            return start
        before = FeedbackOffset.decode(start)
        self._committed.look()
        tick, next_tick = tick_of(self._clock.now()), self._committed.next_tick(before)
        batch = max(before.batch, self._committed.newest)
        self._forget(before)
        inboxes = self._readable(before, is_busy=batch > before.batch)
        next_event_time = self._committed.next_event_time(before)
        latest = FeedbackOffset(batch, tick, inboxes, self._progress(before, next_event_time))
        latest = attrs.evolve(latest, opened=self._committed.opened(before, latest))
        is_idle = latest.batch == before.batch and latest.inboxes == before.inboxes
        is_due = next_tick is not None and next_tick <= tick
        if next_event_time is not None and self._watch is not None:
            is_due |= time_of(latest.event_tick) >= next_event_time or self._watch.ends_soon
        elif next_event_time is not None and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "messages of send_at wait, the first one for %s, and no ingress declares eventTime any more: they are "
                "delivered when one does again",
                from_epoch_millis(next_event_time).isoformat(),
            )
        is_needed = is_needed or is_due or not is_idle
        try:
            self._checkpoint.check_owner()  # also for the other sources of the micro-batch
        except StoreError:
            if is_needed:
                raise  # else an idle application waits until the store answers again
        return latest.encode() if is_needed else start

    def _progress(self, before: FeedbackOffset, next_timer: int | None) -> EventProgress | None:
        """Return the progress of event time before the next micro-batch; None if no ingress declares it.

        Args:
            before: the offset before the micro-batch.
            next_timer: the event time at which the next delayed messages are due; None if none wait.
        """
        facts = self._committed.event_times(before)
        if self._watch is None:
            return None if before.event is None else without_event_time(before.event, facts)
        progress = before.event or EventProgress()
        newest = self._committed.newest_commit
        return self._watch.progress(progress, facts, newest, next_timer)

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Divide the messages and ticks after ``start``, up to ``end``, among tasks.

        Raises:
            CheckpointError: if messages are no longer in the checkpoint.
        """
        before, latest = FeedbackOffset.decode(start), FeedbackOffset.decode(end)
        first, last = before.batch + 1, latest.batch
        if first <= last and self._outbox.manifest(last) is None:
            raise CheckpointError(
                f"the messages of batch {last} are no longer in "
                f"{self._outbox.batch_folder(last).shown}, but have not been delivered yet; "
                "restore the checkpoint from a copy"
            )
        tasks = FeedbackTasks()
        for batch in self._committed.senders(before, latest):
            for segment, stream in message_streams(self._outbox, batch).items():
                tasks.add_sent(batch, segment, stream)
        for name, number in latest.inboxes.items():
            tasks.add_accepted(self._accepted(name, before.last_of(name), number))
        due = self._committed.due(before, latest)
        for tick in (latest.tick, latest.event_tick):
            domain = is_of_event_time(tick)
            tasks.add_ticks(
                [each for each in due if is_of_event_time(due_tick(each)) == domain], tick
            )
        return tasks.encoded()

    def _may_wait(self) -> bool:
        """Return whether the run must not end yet, although there is nothing to deliver now."""
        return self._is_bounded and self._delivers() and self._is_pending()

    def _is_pending(self) -> bool:
        return any(inbox.is_pending() for inbox in self._inboxes.values()) or self._is_held()

    def bound(self) -> None:
        """Make the run bounded: :meth:`latest_offset` waits for results of long calls, and while reading is held."""
        self._is_bounded = True
        if self._watch is not None:
            self._watch.bound()

    def stop(self) -> None:
        """End the waiting of :meth:`latest_offset`, since the query ends."""
        self._is_stopped.set()
        if self._watch is not None:
            self._watch.stop()

    def _forget(self, start: FeedbackOffset) -> None:
        """Let inboxes delete the messages that committed micro-batches have read.

        First the newest commit is flushed to the disk: if a loss of power took it back, its batch would be
        repeated, and would read the messages again.
        """
        for name, inbox in self._inboxes.items():
            if not inbox.is_durable:
                inbox.forget(start.last_of(name))
        durable = {name: start.last_of(name) for name in self._durable}
        if durable == self._forgotten:
            return
        newest = self._commit_log.newest()
        self._commit_log.sync(newest)
        committed, before = feedback_offset(self._commit_log, newest), self._forgotten
        self._forgotten = {name: committed.last_of(name) for name in self._durable}
        for name, number in self._forgotten.items():
            if number != before[name]:
                self._inboxes[name].forget(number)

    def _readable(self, start: FeedbackOffset, *, is_busy: bool) -> dict[str, int]:
        """Return, by inbox, the number of the last message that the next micro-batch reads.

        Args:
            start: the offset up to which earlier micro-batches have read the inboxes.
            is_busy: whether the next micro-batch delivers messages between functions; an inbox may let its
                messages wait for them.
        """
        numbers = dict(start.inboxes)  # also of inboxes that this run does not have
        for name, inbox in self._inboxes.items():
            numbers[name] = inbox.readable(start.last_of(name), is_busy=is_busy)
        return numbers

    def _accepted(self, name: str, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the messages of an inbox with numbers from ``after + 1`` to ``last``.

        Raises:
            CheckpointError: if messages are missing.
        """
        if after == last:
            return []
        inbox = self._inboxes.get(name)
        messages = [] if inbox is None else inbox.messages(after, last)
        if len(messages) != last - after and (inbox is None or inbox.is_durable):
            raise CheckpointError(
                f"messages {after + 1} to {last} of the inbox {name} are no longer in the checkpoint, and "
                "have not been delivered yet; restore the checkpoint from a copy"
            )
        return messages
