# SPDX-License-Identifier: Apache-2.0
"""The publisher and its egresses, step by step instead of in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import attrs

from simulation.cluster import AtLeastOnceModel, ExactlyOnceModel
from simulation.world import World
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane import Cluster, Lane, UndeliveredError
from statefun.runtime.egress.lane_set import LaneTurn
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.progress_topic import ProgressTopic
from statefun.runtime.egress.refusals import Refusals
from statefun.runtime.egress.tasks import LaneState
from statefun.runtime.egress.thread import EgressThread
from statefun.runtime.release.publisher import Publisher

_CHUNK = 2
"""Records."""
_ENDLESS = 300
"""After so many jobs without a batch that is published there will never be one."""


class EndlessError(Exception):
    """Something goes on for ever."""


class TaskLostError(BaseException):
    """The executor of a task dies here."""


class _Thread:
    """One that never runs."""

    def __init__(self, **arguments: object) -> None:
        pass

    def start(self) -> None:
        """Leave it to the scheduler."""

    def is_alive(self) -> bool:
        """Nobody has to wait for it."""
        return False


THREADING = SimpleNamespace(
    Thread=_Thread, Event=threading.Event, Condition=threading.Condition, Lock=threading.Lock
)
"""In the place of the module, for those whose threads take their steps here."""


@attrs.frozen
class SimulatedFactory(KafkaLaneFactory):
    """Makes lanes to the model of a cluster."""

    world: World = attrs.field(kw_only=True)

    def create_progress(self, query_id: str, lanes: int) -> tuple[ProgressTopic, int]:
        """Take note of how many lanes there are."""
        broker = self.world.broker
        if self.needs_progress:
            if self.world.is_haunted and lanes > broker.lanes:
                raise UndeliveredError  # what outlives its driver was told of its lanes before
            broker.lanes = lanes = max(broker.lanes, lanes)
        return cast("ProgressTopic", query_id), lanes

    def lane(
        self,
        number: int,
        progress: ProgressTopic,
        refusals: Refusals,
        turn: LaneTurn,
        marker: Marker | None = None,
    ) -> Lane:
        """Return a lane."""
        world = self.world
        id_ = f"{progress}/{self.egress.id}/{number}"

        def connect() -> Cluster:
            model = ExactlyOnceModel if self.needs_progress else AtLeastOnceModel
            return model(world.broker, id_)

        def wait(reason: str) -> None:
            world.has_troubles = True
            world.chaos.clock.advance(1000)
            if turn.pause(timedelta(0)):
                raise UndeliveredError

        def is_late() -> bool:
            if world.in_task and world.chaos.happens(world.chaos.troubles / 10):
                world.has_troubles = True
                raise TaskLostError
            return turn.is_over()

        return Lane(
            f"egress {self.egress.id}",
            self.run,
            self.checkpoint,
            connect,
            wait,
            is_late=is_late,
            marker=marker,
            chunk_records=_CHUNK,
        )


@attrs.define
class Workers:
    """The SparkContext and RDD that run the publishing tasks."""

    world: World
    states: Sequence[LaneState] = ()
    task: Callable[[Iterable[LaneState]], Iterator[LaneState]] | None = None

    def setJobGroup(self, *_: object) -> None:  # noqa: N802 - Spark's
        """Name the next jobs."""

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's
        """End jobs."""

    def parallelize(self, states: Sequence[LaneState], slices: int) -> Workers:
        """Take what tasks are given."""
        return attrs.evolve(self, states=states)

    def mapPartitions(  # noqa: N802 - Spark's
        self, task: Callable[[Iterable[LaneState]], Iterator[LaneState]]
    ) -> Workers:
        """Take what tasks do."""
        return attrs.evolve(self, task=task)

    def collect(self) -> list[LaneState]:
        """Run a task for each state: some twice, some again since their executors die."""
        world = self.world
        world.jobs += 1
        if world.jobs > _ENDLESS:
            raise EndlessError("publishing does not come to an end")
        results = []
        for state in self.states:
            if world.chaos.happens(world.chaos.troubles / 2):
                world.has_troubles = True
                world.zombies.append(lambda state=state: self._run(state))  # type: ignore[misc]
            result = None
            while result is None:
                try:
                    result = self._run(state)
                except TaskLostError:
                    continue
            results.append(result)
        return results

    def _run(self, state: LaneState) -> LaneState:
        world = self.world
        assert self.task is not None
        before, world.in_task = world.in_task, True
        try:
            [result] = self.task([state])
        finally:
            world.in_task = before
        return result


class Publishing:
    """A publisher, driven by the scheduler.

    Its threads and conditions would leave the order of steps to chance.
    """

    def __init__(self, publisher: Publisher, world: World) -> None:
        self._publisher: Any = publisher
        self._world = world
        self._is_busy = False
        cast("Any", publisher)._poll = 0.0
        self._egresses = {id_: _egress(thread) for id_, thread in self._threads.items()}

    @property
    def _threads(self) -> dict[str, EgressThread]:
        return cast("dict[str, EgressThread]", self._publisher._threads)

    @property
    def backlog(self) -> int:
        """How many batches are not published yet."""
        return int(self._publisher._backlog())

    def step(self) -> bool:
        """Do some of the waiting work; return whether there was any."""
        if self._is_busy:  # and this happens in the midst of it
            return False
        self._is_busy = True
        try:
            return self._step()
        finally:
            self._is_busy = False

    def _step(self) -> bool:
        publisher: Any = self._publisher
        waiting = [id_ for id_, thread in self._threads.items() if _queue(thread)]
        released, uncommitted = publisher._released, publisher._uncommitted
        if not waiting or self._world.chaos.random.random() < 0.5:
            before = len(uncommitted), len(released)
            if uncommitted or (released and not released[0].egresses):
                publisher._step()
            if before != (len(uncommitted), len(released)):
                return True
        if waiting:
            next(self._egresses[self._world.chaos.random.choice(waiting)])
            self._world.jobs = 0
        return bool(waiting)

    def left_behind(self) -> list[Callable[[], object]]:
        """Return the steps that the egresses of a replaced driver may still take."""
        return [
            lambda egress=self._egresses[id_]: next(egress, None)  # type: ignore[misc]
            for id_, thread in self._threads.items()
            if _queue(thread)
        ]


def _queue(thread: Any) -> Any:
    return thread._queue


def _egress(thread: Any) -> Iterator[None]:
    """Take the steps of an egress's thread, up to the next published batch."""
    while batches := list(_queue(thread)):
        for published in thread._lanes.publish(batches):
            if published.is_whole:
                _queue(thread).popleft()
            thread._on_published(published)
            yield
