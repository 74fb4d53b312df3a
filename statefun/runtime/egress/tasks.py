# SPDX-License-Identifier: Apache-2.0
"""Publishes the lanes of an egress by Spark tasks, which run at the same time.

A task does not keep its core for long, because other tasks need the core. It ends between two
portions of records and returns the lane's progress, and the next task of the lane goes on from there. A task
also ends when it makes no progress, but never because writing a portion takes long: the next task would
have to write the portion again from its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import groupby

import attrs
from pyspark import SparkContext

from statefun.protocol.runtime_pb2 import Failure
from statefun.runtime.checkpoint.outbox import Outbox, Staged
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane import Lane, LaneBatch, UndeliveredError
from statefun.runtime.egress.lane_set import LaneTurn, Published
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.patience import Patience
from statefun.runtime.egress.progress_topic import ProgressTopic
from statefun.runtime.egress.refusals import OutboxPlace
from statefun.runtime.spark_internals.collecting import collected
from statefun.runtime.spark_internals.error_texts import LostWorkerError, has_lost_worker
from statefun.sdk.errors import StatefunError, restored

_TASK_TIME = timedelta(seconds=10)
"""How long a task may have its core; then it ends, and the next task of the lane goes on."""
_STALL = timedelta(seconds=30)
"""How long a task may go without progress; then it ends, and the Kafka client has given up its requests."""


@attrs.frozen
class LaneState:
    """The progress of a lane, which one task of the lane passes to the next one."""

    lane: int
    marker: Marker | None = None
    alone: bool = False
    """Whether each record must be sent in a separate producer batch."""
    written: frozenset[OutboxPlace] = frozenset()
    """The places, in the outbox, of refused records whose dead letters another egress has already."""
    handled: int = 0
    """The number of records that were written since the marker that the last task was given, or refused meanwhile.

    So they count, too, if an attempt at the task has written them whose result was lost."""
    refused: int = 0
    """The number of records that the cluster has refused during the last task."""
    is_done: bool = False
    failure: bytes = b""
    """The error that ends publishing, serialized; empty if there is none."""


class TaskLanes:
    """All lanes of one egress, published by Spark tasks that run at the same time.

    Args:
        factory: makes the lanes, in the driver and in tasks.
        context: runs the tasks.
        turn: decides when the driver ends publishing.
    """

    def __init__(self, factory: KafkaLaneFactory, context: SparkContext, turn: LaneTurn) -> None:
        self._factory = factory
        self._context = context
        self._turn = turn
        self._group = f"statefun-egress-{factory.egress.id}"
        self._progress: ProgressTopic | None = None
        self._created = 0
        self._markers: list[Marker | None] = []
        """The progress of each lane; None if nothing is published."""
        self._patience = Patience(factory.egress)

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish the egress's records of ``batches`` in order; yield a batch once its records are published."""
        for lanes, same_lanes in groupby(batches, key=lambda staged: staged.lanes):
            batches_of_job = list(same_lanes)
            if self._progress is None or self._created < lanes:
                query_id = batches_of_job[0].manifest.query_id
                self._progress, _ = self._factory.create_progress(query_id, lanes)
                # Lanes of a first run have no owner, and a task would take such a lane for its own.
                with closing(self._factory.driver_lanes(self._turn)) as driver_lanes:
                    driver_lanes.claim_more(query_id, lanes)
                    self._markers[self._created :] = driver_lanes.markers[self._created : lanes]
                self._created = lanes
            numbers = tuple(staged.manifest.batch for staged in batches_of_job)
            task = LaneTask(self._factory, self._progress, numbers)
            states = [LaneState(lane, marker) for lane, marker in enumerate(self._markers[:lanes])]
            handled, refused = 0, 0
            try:
                while states:
                    before, states = states, self._run(task, states)
                    for state in states:
                        self._markers[state.lane] = state.marker
                        handled += state.handled
                        refused += state.refused
                    states = self._unfinished(before, states)
            except Exception:
                yield Published.of(batches_of_job[0], handled, refused, is_whole=False)
                raise
            for staged in batches_of_job:
                yield Published.of(staged, handled, refused)
                handled, refused = 0, 0

    def _unfinished(
        self, before: Sequence[LaneState], after: Sequence[LaneState]
    ) -> list[LaneState]:
        """Return the lanes that are not done after their newest tasks.

        Raises:
            UndeliveredError: if publishing must end before they are done.
            StatefunError: if a lane cannot be published.
        """
        for failure in [Failure.FromString(state.failure) for state in after if state.failure]:
            raise restored(failure.code, failure.message)
        self._log_waiting(before, after)
        unfinished = [state for state in after if not state.is_done]
        if unfinished and self._turn.is_over():
            raise UndeliveredError
        return unfinished

    def _log_waiting(self, before: Sequence[LaneState], after: Sequence[LaneState]) -> None:
        """Log a warning if a lane makes no progress in several tasks; a single task is too short to notice it.

        Args:
            before: the progress of the lanes before their newest tasks.
            after: the progress of the same lanes after these tasks.
        """
        pairs = zip(before, after, strict=True)
        if any(new.marker == old.marker and not new.is_done for old, new in pairs):
            self._patience.wait()
        else:
            self._patience.end()

    def _run(self, task: LaneTask, states: Sequence[LaneState]) -> list[LaneState]:
        """Run one Spark job, with a task for each unfinished lane; return the progress of these lanes.

        Raises:
            UndeliveredError: if the job was ended because publishing must end.
            LostWorkerError: if a Python worker has ended during the job; the records are still in the outbox.
        """
        context = self._context
        context.setJobGroup(self._group, f"publishing to {self._factory.egress.id}", True)
        try:
            return collected(context.parallelize(states, len(states)).mapPartitions(task))
        except Exception as error:
            if self._turn.is_over():
                raise UndeliveredError from None
            if has_lost_worker(str(error)):
                work = f"while it published to egress {self._factory.egress.id}, and not all records are published"
                raise LostWorkerError(work) from error
            raise

    def tend(self, *, is_last: bool = False) -> None:
        """Do nothing: readers see Kafka's records once they are written."""

    def cancel(self) -> None:
        """Make Spark end the tasks that publish."""
        self._context.cancelJobGroup(self._group)

    def close(self) -> None:
        """Do nothing: each task closes its own connection."""


class _TaskTurn:
    """Ends the publishing of lanes in a Spark task when the task has had its core for the allowed time.

    A lane that is not finished goes on in a later task.
    """

    def __init__(self) -> None:
        self._end = time.monotonic() + _TASK_TIME.total_seconds()

    def should_stop(self, stalled: timedelta) -> bool:
        return stalled > _STALL

    def is_over(self) -> bool:
        return time.monotonic() > self._end

    def pause(self, time_: timedelta) -> bool:
        time.sleep(time_.total_seconds())
        return self.is_over()


@attrs.frozen
class LaneTask:
    """A Spark task that publishes the records that its lanes have in ``batches``, for a limited time."""

    factory: KafkaLaneFactory
    progress: ProgressTopic
    batches: tuple[int, ...]

    def __call__(self, states: Iterable[LaneState]) -> Iterator[LaneState]:
        """Publish the lanes of ``states`` for a limited time; yield the new progress of each lane."""
        for state in states:
            turn = _TaskTurn()
            refusals = self.factory.refusals(turn, alone=state.alone, written=state.written)
            lane = self.factory.lane(state.lane, self.progress, refusals, turn, state.marker)
            is_done, failure = False, b""
            try:
                is_done = self._publish(lane, state, turn)
            except UndeliveredError:
                pass  # the next task continues
            except StatefunError as error:
                failure = Failure(code=error.code, message=error.message).SerializeToString()
            finally:
                lane.close()
                refusals.counter.log_remaining()
            yield LaneState(
                state.lane,
                lane.marker,
                refusals.alone,
                frozenset(refusals.written),
                lane.handled,
                refusals.counter.count,
                is_done,
                failure,
            )

    def _publish(self, lane: Lane, state: LaneState, turn: _TaskTurn) -> bool:
        """Publish the lane's records batch by batch; return whether all records are published.

        Publishing ends early only after some progress, however long writing the first records takes, and not before
        the batch up to which another attempt at the task has published, so that the lane counts its records.
        """
        outbox = Outbox(self.factory.checkpoint)
        for batch in self.batches:
            marker = lane.marker
            if turn.is_over() and marker and marker != state.marker and marker.batch < batch:
                return False
            staged = outbox.staged(batch)
            if staged is not None:
                lane.publish(LaneBatch.of(staged, str(self.factory.egress.id), state.lane))
        return True
