# SPDX-License-Identifier: Apache-2.0
"""Updates the figures of the application once a second, from the progress of a run."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from pyspark.sql.streaming.listener import StreamingQueryProgress

from statefun.module.model import OnDataLoss
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.ingress.positions import Position, positions, records_read
from statefun.runtime.preflight.preparation import Prepared
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.reporting.figures import Figures, PartitionFigures
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.spark_internals.jvm import JVM_GONE, JvmError, heap
from statefun.runtime.spark_internals.query_progress import batch_times

_HEAP_SECONDS = 5
"""The time between two looks at the JVM's heap."""


class Observation:
    """Observes one run, and updates the figures.

    Args:
        figures: gets the figures.
        prepared: the ingresses, and where they start and stop.
        publisher: publishes the records of the run.
        commit_log: the log of commits.
        summary: the counts of the run.
    """

    def __init__(
        self,
        figures: Figures,
        prepared: Prepared,
        publisher: Publisher,
        commit_log: CommitLog,
        summary: Summary,
    ) -> None:
        self._figures = figures
        self._ingresses = prepared.ingresses
        self._stops = prepared.bounds.stops
        self._connectors = prepared.connectors
        self._publisher = publisher
        self._commit_log = commit_log
        self._next_heap = 0.0
        figures.summary = summary
        for ingress, start in zip(self._ingresses, prepared.starts, strict=True):
            offsets = json.loads(start) if start.startswith("{") else {}
            for topic, partitions in offsets.items():
                for partition, offset in partitions.items():
                    if offset >= 0:  # others stand for the beginning and the end of the partition
                        figures.first_offset(str(ingress.id), topic, partition, offset)

    def begin(self, history: Iterable[StreamingQueryProgress]) -> None:
        """Set the offsets at which the run began to read.

        Args:
            history: Spark's progress reports of this run, the oldest first.
        """
        for progress in history:
            deque(self._of_partitions(progress, self._positions(progress)), maxlen=0)
            self._count_connectors(progress)

    def look(
        self,
        progress: StreamingQueryProgress | None,
        history: Callable[[], Iterable[StreamingQueryProgress]] = tuple,
    ) -> None:
        """Update the figures with the run's present progress.

        Args:
            progress: the query's newest progress report; None before the first one.
            history: returns the newest reports, the oldest first; called only if a micro-batch that no look has seen
                has read a new partition, as it takes a while.
        """
        figures = self._figures
        figures.is_up = True
        figures.committed(self._commit_log.newest())
        if progress is not None:
            present = self._positions(progress)
            if self._has_missed_partition(present):
                self.begin(history())
            figures.partitions = list(self._of_partitions(progress, present))
            for position in present:
                if position.read:  # else it is not read yet
                    figures.forget_others(str(position.ingress.id), position.start, position.read)
            self._count_connectors(progress)
            times = batch_times(progress)
            if times is not None:
                figures.ended(times)
        figures.count_published(self._publisher.waiting())
        figures.look()
        if time.monotonic() >= self._next_heap:
            self._next_heap = time.monotonic() + _HEAP_SECONDS
            with suppress(JvmError, *JVM_GONE):
                figures.heap = heap()

    def close(self) -> None:
        """Record in the figures that the query of the run has ended."""
        self._figures.is_up = False

    def _positions(self, progress: StreamingQueryProgress) -> list[Position]:
        return list(positions(self._ingresses, self._stops, progress))

    def _has_missed_partition(self, present: Iterable[Position]) -> bool:
        """Return whether a micro-batch before the present positions has read a partition that is not known yet."""
        return any(
            not self._figures.knows(str(position.ingress.id), topic, number)
            for position in present
            for topic, partitions in position.start.items()
            for number in partitions
        )

    def _of_partitions(
        self, progress: StreamingQueryProgress, present: Iterable[Position]
    ) -> Iterator[PartitionFigures]:
        for position, source in zip(present, progress.sources, strict=False):
            name, group = str(position.ingress.id), position.ingress.consumer_group_id or ""
            begins_with_first = _begins_with_first(position, source.numInputRows)
            for topic, partitions in position.read.items():
                lags = position.lags.get(topic, {})
                for number, read in partitions.items():
                    new_start = 0 if begins_with_first else read
                    start = position.start.get(topic, {}).get(number, new_start)
                    first = self._figures.first_offset(name, topic, number, start)
                    lag = lags.get(number, 0)
                    yield PartitionFigures(name, topic, number, group, read, lag, first)

    def _count_connectors(self, progress: StreamingQueryProgress) -> None:
        sources = progress.sources[len(self._ingresses) :]
        for connector, source in zip(self._connectors, sources, strict=False):
            name, read = str(connector.id), records_read([source.endOffset])
            first = self._figures.first_offset(name, "", "", records_read([source.startOffset]))
            self._figures.connectors[name] = read - first


def _begins_with_first(position: Position, rows: int) -> bool:
    """Return whether a micro-batch has read its new partitions, which have no earlier offset, from their first record on.

    All partitions are new in a run that begins with the first record of a topic, or with the next one. Spark says only how
    many records (``rows``) the micro-batch has read of all partitions.
    """
    if position.start and position.ingress.on_data_loss is OnDataLoss.FAIL:
        return True  # Spark ends the query if a partition that was added later does not begin at 0
    new = 0
    for topic, partitions in position.read.items():
        starts = position.start.get(topic, {})
        new += sum(end for number, end in partitions.items() if number not in starts)
        rows -= sum(end - starts[number] for number, end in partitions.items() if number in starts)
    return new == rows
