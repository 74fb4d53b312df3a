# SPDX-License-Identifier: Apache-2.0
"""Computes the progress of event time for the next micro-batch, when the feedback source plans it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from statefun.engine.clock import Clock
from statefun.engine.watermark import EventProgress, Partition, Situation, next_progress
from statefun.module.model import KafkaIngress
from statefun.protocol.runtime_pb2 import EventTimes
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.partition_ends import CaughtUp, PartitionEnds


class EventWatch:
    """Watches the ingresses with event time.

    Args:
        checkpoint: the query's checkpoint.
        ingresses: all Kafka ingresses in the order of the query's sources.
        clock: the driver's clock.
        is_final: whether a bounded run delivers all messages of ``send_at`` at its end.
        leaves_unread: returns whether the next micro-batch leaves records unread that a later one reads.
    """

    def __init__(
        self,
        checkpoint: Folder,
        ingresses: Sequence[KafkaIngress],
        clock: Clock,
        *,
        is_final: bool = False,
        leaves_unread: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_final = is_final
        self._leaves_unread = leaves_unread
        self._commit_log = CommitLog(checkpoint)
        self._clock = clock
        self._sources = {
            number: each for number, each in enumerate(ingresses) if each.event_time is not None
        }
        self._settings = {
            str(each.id): each.event_time
            for each in self._sources.values()
            if each.event_time is not None
        }
        self._ends = PartitionEnds([*self._sources.values()], clock)
        self._caught_up = CaughtUp()
        self._is_bounded = False
        self._first: int | None = None
        """The newest micro-batch that was committed before the run."""
        self._is_over = False
        self._has_left = False
        """Whether the micro-batch that is planned or under way leaves records unread."""
        self._batch = -1
        """The committed micro-batch up to whose end ``_read`` says that partitions are read."""
        self._read: dict[Partition, int] = {}

    def progress(
        self,
        before: EventProgress,
        facts: Iterable[EventTimes],
        newest: int,
        next_timer: int | None = None,
    ) -> EventProgress:
        """Return the progress of event time before the next micro-batch.

        Args:
            before: the progress before the micro-batches with ``facts``.
            facts: what committed micro-batches have found that have not counted yet.
            newest: the number of the newest committed micro-batch; -1 if there is none.
            next_timer: the event time at which the next messages of ``send_at`` are due; None if none wait.
        """
        if self._first is None:
            self._first = newest
        if newest > self._batch:
            read = self._positions(newest)
            # Spark gives a bounded run all records that it has found at the start, as fast as it may: a micro-batch
            # without any comes after the last one, unless it was not allowed to read.
            has_read = newest > self._first and not self._has_left
            self._is_over = has_read and bool(read) and read == self._read
            self._batch, self._read = newest, read
            if self._is_bounded and not self._read.keys() <= before.newest.keys():
                self._ends.ask([*self._read])  # the run may end before the thread asks
        ends = self._ends.ends([*self._read])
        caught_up = self._caught_up.look(self._read, ends)
        now = self._clock.now()
        self._has_left = self._ends_with_timers and self._leaves_unread()
        is_over = self._is_over and self._ends_with_timers and not self._has_left
        situation = Situation([*self._read], caught_up, now, self._is_bounded, next_timer, is_over)
        return next_progress(before, facts, self._settings, situation)

    @property
    def _ends_with_timers(self) -> bool:
        return self._is_final and self._is_bounded

    @property
    def ends_soon(self) -> bool:
        """Whether one more micro-batch has to find out whether all records of the run are read."""
        return self._ends_with_timers and not (self._is_over or self._has_left)

    def bound(self) -> None:
        """Make the run bounded: partitions without records are then idle at once."""
        self._is_bounded = True

    def stop(self) -> None:
        """End the thread that asks for the ends of partitions."""
        self._ends.stop()

    def _positions(self, batch: int) -> dict[Partition, int]:
        """Return the offset before which each partition is read by a micro-batch."""
        offsets = self._commit_log.end_offsets(batch)
        found: dict[Partition, int] = {}
        for number, ingress in self._sources.items():
            topics: Mapping[str, Mapping[str, int]] = offsets[number] or {}
            for topic, numbers in topics.items():
                for partition, offset in numbers.items():
                    found[Partition(str(ingress.id), topic, int(partition))] = offset
        return found
