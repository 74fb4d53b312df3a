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
    """Computes the progress of event time from the partitions of the ingresses that declare it.

    Args:
        checkpoint: the query's checkpoint.
        ingresses: all Kafka ingresses in the order of the query's sources.
        clock: the driver's clock.
        limits: returns how many records a micro-batch reads of each ingress at most, 0 for a paused ingress; after
            each change, it returns a new list.
        is_final: whether a bounded run delivers all messages of ``send_at`` at its end.
    """

    def __init__(
        self,
        checkpoint: Folder,
        ingresses: Sequence[KafkaIngress],
        clock: Clock,
        limits: Callable[[], Sequence[int]],
        *,
        is_final: bool = False,
    ) -> None:
        self._is_final = is_final
        self._limits = limits
        self._limited = limits()
        """The limits at the last look."""
        self._has_read = True
        """Whether no ingress has been paused since the look before the last commit."""
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
            facts: the facts about event time of committed micro-batches that ``before`` does not include.
            newest: the number of the newest committed micro-batch; -1 if there is none.
            next_timer: the event time at which the next messages of ``send_at`` are due; None if none wait.
        """
        limits, self._limited = self._limited, self._limits()
        reads = limits is self._limited and self._reads
        self._has_read &= reads
        if self._first is None:
            self._first = newest
        if newest > self._batch:
            read = self._positions(newest)
            # Spark gives a bounded run all records that it has found at the start, as fast as it may: a micro-batch
            # without any comes after the last one.
            self._is_over = newest > self._first and read == self._read and self._has_read
            self._batch, self._read, self._has_read = newest, read, reads
            if self._is_bounded and not self._read.keys() <= before.newest.keys():
                self._ends.ask([*self._read])  # the run may end before the thread asks
        ends = self._ends.ends([*self._read])
        caught_up = self._caught_up.look(self._read, ends)
        now = self._clock.now()
        is_over = self._is_over and self._ends_with_timers
        situation = Situation([*self._read], caught_up, now, self._is_bounded, next_timer, is_over)
        return next_progress(before, facts, self._settings, situation)

    @property
    def _ends_with_timers(self) -> bool:
        return self._is_final and self._is_bounded

    @property
    def _reads(self) -> bool:
        """Whether all ingresses with event time may be read: at the last look, none of them was paused."""
        return all(self._limited[number] for number in self._sources)

    @property
    def ends_soon(self) -> bool:
        """Whether the run needs one more micro-batch to find out that it has read all of its records.

        False while an ingress is paused, since a micro-batch cannot find that out then.
        """
        return self._ends_with_timers and not self._is_over and self._reads

    def bound(self) -> None:
        """Make the run bounded: partitions without records are then idle at once."""
        self._is_bounded = True

    def stop(self) -> None:
        """End the thread that asks for the ends of partitions."""
        self._ends.stop()

    def _positions(self, batch: int) -> dict[Partition, int]:
        """Return, by partition, the offset up to which all micro-batches until ``batch`` have read."""
        offsets = self._commit_log.end_offsets(batch)
        found: dict[Partition, int] = {}
        for number, ingress in self._sources.items():
            topics: Mapping[str, Mapping[str, int]] = offsets[number] or {}
            for topic, numbers in topics.items():
                for partition, offset in numbers.items():
                    found[Partition(str(ingress.id), topic, int(partition))] = offset
        return found
