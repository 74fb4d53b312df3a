# SPDX-License-Identifier: Apache-2.0
"""All lanes of one egress: published by the driver, or by Spark tasks side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Protocol

import attrs
from pyspark import SparkContext

from statefun.protocol.runtime_pb2 import Failure
from statefun.runtime.egress.kafka import (
    AtLeastOnce,
    ExactlyOnce,
    Losses,
    Patience,
    Unconfirmed,
)
from statefun.runtime.egress.lane import Cluster, Lane, LaneBatch, UndeliveredError
from statefun.runtime.egress.progress import ProgressTopic
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import Outbox, Staged
from statefun.sdk import errors
from statefun.sdk.errors import StatefunError
from statefun.spec.model import DeliverySemantic, KafkaEgress

_PAUSE = timedelta(seconds=1)
_TASK_TIME = timedelta(seconds=10)
"""A task that is kept waiting for this long gives its core back, and another one tries."""


class Lanes(Protocol):
    """Publishes batches to one egress."""

    def publish(self, batches: Sequence[Staged]) -> Iterator[Staged]:
        """Publish ``batches``; yield each that is."""

    def cancel(self) -> None:
        """Let what runs in another thread end soon, with UndeliveredError."""

    def close(self) -> None:
        """Disconnect."""


@attrs.frozen
class LaneFactory:
    """Makes the lanes of one egress; travels to Spark tasks."""

    egress: KafkaEgress
    checkpoint: Folder
    kafka_timeout: timedelta
    run: str
    """The id of the application's run."""

    @property
    def needs_progress(self) -> bool:
        """Whether the cluster keeps note of what is published."""
        return self.egress.delivery_semantic is DeliverySemantic.EXACTLY_ONCE

    def create_progress(self, query_id: str, lanes: int) -> int:
        """Make sure that the cluster can keep note of what is published, if it has to.

        Returns:
            How many lanes there are, those of earlier runs included.

        Raises:
            KafkaError: if it cannot.
        """
        if not self.needs_progress:
            return lanes
        return ProgressTopic(self.egress, query_id).create(lanes, self.kafka_timeout)

    def lane(
        self,
        number: int,
        query_id: str,
        should_stop: Callable[[], bool],
        pause: Callable[[timedelta], bool],
    ) -> Lane:
        """Return a lane.

        Args:
            number: which one.
            query_id: the checkpoint's own id.
            should_stop: whether to give up.
            pause: waits, and returns whether to give up.
        """
        egress = self.egress
        patience, losses = Patience(egress), Losses(egress)

        def connect() -> Cluster:
            match egress.delivery_semantic:
                case DeliverySemantic.NONE:
                    return Unconfirmed(egress, should_stop, patience, losses)
                case DeliverySemantic.AT_LEAST_ONCE:
                    return AtLeastOnce(egress, should_stop, patience)
                case DeliverySemantic.EXACTLY_ONCE:
                    progress = ProgressTopic(egress, query_id)
                    return ExactlyOnce(egress, should_stop, patience, progress, number)

        def wait(reason: str) -> None:
            patience.wait(reason)
            if pause(_PAUSE):
                raise UndeliveredError

        return Lane(f"egress {egress.id}", self.run, self.checkpoint, connect, wait)


class DriverLanes:
    """Lanes that the driver publishes, one after the other."""

    def __init__(
        self,
        factory: LaneFactory,
        should_stop: Callable[[], bool],
        pause: Callable[[timedelta], bool],
    ) -> None:
        self._factory = factory
        self._should_stop = should_stop
        self._pause = pause
        self._lanes: list[Lane] = []

    def open(self, query_id: str, lanes: int, known_runs: Collection[str]) -> None:
        """Connect so many lanes, and those that an earlier run had; :meth:`claim` them then.

        An older copy of the checkpoint may be behind in one of those alone.

        Raises:
            StatefunError: if nothing can be published.
        """
        self._create(query_id, lanes)
        for lane in self._lanes:
            lane.open(known_runs)

    def claim(self) -> set[str]:
        """Let nobody else publish any more; return the runs that have."""
        return {lane.claim() for lane in self._lanes}

    def publish(self, batches: Sequence[Staged]) -> Iterator[Staged]:
        """Publish ``batches``; yield each that is."""
        for staged in batches:
            is_first = self._create(staged.manifest.query_id, staged.lanes)
            if is_first and self._factory.needs_progress:
                self.claim()  # a first run could not earlier
            for number, lane in enumerate(self._lanes[: staged.lanes]):
                lane.publish(LaneBatch.of(staged, str(self._factory.egress.id), number))
            yield staged

    def cancel(self) -> None:
        """Nothing to do: the lanes ask whether they should stop."""

    def close(self) -> None:
        """Disconnect."""
        for lane in self._lanes:
            lane.close()

    def _create(self, query_id: str, lanes: int) -> bool:
        """Make sure that there are so many lanes; return whether there were none."""
        before = len(self._lanes)
        if before < lanes:
            for number in range(before, self._factory.create_progress(query_id, lanes)):
                lane = self._factory.lane(number, query_id, self._should_stop, self._pause)
                self._lanes.append(lane)
        return not before


class TaskLanes:
    """Lanes that Spark tasks publish, side by side."""

    def __init__(
        self, factory: LaneFactory, context: SparkContext, should_stop: Callable[[], bool]
    ) -> None:
        self._factory = factory
        self._context = context
        self._should_stop = should_stop
        self._group = f"statefun-egress-{factory.egress.id}"
        self._created = 0

    def publish(self, batches: Sequence[Staged]) -> Iterator[Staged]:
        """Publish ``batches``; yield each that is."""
        for lanes, group in groupby(batches, key=lambda staged: staged.lanes):
            together = list(group)
            query_id = together[0].manifest.query_id
            if self._created < lanes:
                self._factory.create_progress(query_id, lanes)
                self._created = lanes
            task = _LaneTask(
                self._factory, query_id, tuple(staged.manifest.batch for staged in together)
            )
            while not self._run(task, lanes):
                if self._should_stop():
                    raise UndeliveredError
            yield from together

    def _run(self, task: _LaneTask, lanes: int) -> bool:
        """Run one job; return whether everything was published."""
        context = self._context
        context.setJobGroup(self._group, f"publishing to {self._factory.egress.id}", True)
        try:
            results = context.parallelize(range(lanes), lanes).mapPartitions(task).collect()
        except Exception:
            if self._should_stop():
                raise UndeliveredError from None
            raise
        for failure in map(Failure.FromString, filter(None, results)):
            raise errors.by_code(failure.code)(failure.message)
        return all(result is not None for result in results)

    def cancel(self) -> None:
        """Let Spark end the tasks that run."""
        self._context.cancelJobGroup(self._group)

    def close(self) -> None:
        """Nothing to do: each task disconnects for itself."""


@attrs.frozen
class _LaneTask:
    """What a Spark task does: publish its lane of some batches."""

    factory: LaneFactory
    query_id: str
    batches: tuple[int, ...]

    def __call__(self, numbers: Iterable[int]) -> Iterator[bytes | None]:
        """Publish lanes; yields of each a serialized failure, empty if none; None if unfinished."""
        for number in numbers:
            deadline = time.monotonic() + _TASK_TIME.total_seconds()

            def late(deadline: float = deadline) -> bool:
                return time.monotonic() > deadline

            def pause(time_: timedelta, late: Callable[[], bool] = late) -> bool:
                time.sleep(time_.total_seconds())
                return late()

            lane = self.factory.lane(number, self.query_id, late, pause)
            try:
                yield self._publish(lane, number)
            finally:
                lane.close()

    def _publish(self, lane: Lane, number: int) -> bytes | None:
        outbox = Outbox(self.factory.checkpoint)
        try:
            for batch in self.batches:
                staged = outbox.staged(batch)
                if staged is not None:
                    lane.publish(LaneBatch.of(staged, str(self.factory.egress.id), number))
        except UndeliveredError:
            return None
        except StatefunError as error:
            return Failure(code=error.code, message=error.message).SerializeToString()
        return b""
