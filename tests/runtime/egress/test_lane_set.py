# SPDX-License-Identifier: Apache-2.0
"""How many records the lanes of an egress say they have published, in the driver and in tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from runtime.egress.test_connector_lanes import egress as connector_egress
from runtime.egress.test_connector_lanes import staged
from runtime.egress.test_lane import Store
from simulation.publishing import SimulatedFactory, Workers
from simulation.world import World

from statefun.module.location import Location
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Staged
from statefun.runtime.egress import tasks as tasks_module
from statefun.runtime.egress.connector_lanes import ConnectorLaneFactory
from statefun.runtime.egress.lane import Lane, UndeliveredError
from statefun.runtime.egress.lane_set import DriverLanes, Lanes, UntilStopped
from statefun.runtime.egress.tasks import LaneState, TaskLanes
from statefun.runtime.settings import Settings
from statefun.sdk.address import TypeName


def counts(lanes: Lanes, batches: Sequence[Staged]) -> Iterator[tuple[int, bool]]:
    """Publish batches; yield how many records of each count, and whether it is whole."""
    for each in lanes.publish(batches):
        yield each.written, each.is_whole


def driver_lanes(
    folder: Folder, stores: Sequence[Store], run: str, is_late: Callable[[], bool]
) -> DriverLanes:
    """Return lanes with portions of two records, one for each store."""

    def lane(store: Store) -> Lane:
        return Lane(
            "egress t/out",
            run,
            folder,
            lambda: store,
            lambda _: None,
            is_late=is_late,
            chunk_records=2,
        )

    factory = ConnectorLaneFactory(connector_egress("Connection"), folder, run)
    lanes = DriverLanes(factory, lambda *_: [lane(store) for store in stores])
    lanes.open("query", len(stores), ["first", "second"])
    lanes.claim()
    return lanes


def test_records_of_a_batch_that_is_not_whole_count_before_the_error(tmp_path: Path) -> None:
    """Those of all lanes; the next run counts the rest."""
    folder, stores = Folder.at(tmp_path), [Store(), Store()]
    batch = staged(folder, 0, range(5), frozenset({4}), lanes=2)
    late = iter([False, False, True])
    first = counts(driver_lanes(folder, stores, "first", lambda: next(late, True)), [batch])

    assert next(first) == (4 + 2, False)
    with pytest.raises(UndeliveredError):
        next(first)

    second = driver_lanes(folder, stores, "second", lambda: False)
    assert list(counts(second, [batch])) == [(3, True)]


@attrs.define
class LosingWorkers(Workers):
    """Workers whose first result of each task is lost; a job may fail."""

    fails: Callable[[], bool] = lambda: False

    def collect(self) -> list[LaneState]:
        """Run all tasks twice, as Spark does when an executor dies before the result of a task has arrived."""
        if self.fails():
            raise ValueError("a job")
        for state in self.states:
            self._run(state)
        return super().collect()


def task_lanes(
    tmp_path: Path, semantic: DeliverySemantic, fails: Callable[[], bool] = lambda: False
) -> tuple[TaskLanes, Sequence[Staged]]:
    """Return lanes that publish in tasks of workers that lose results, and two batches with 5 records in both lanes."""
    world, folder = World.of(0), Folder.at(tmp_path)
    world.chaos.active = False
    egress = KafkaEgress(TypeName("t", "out"), "", Location("module.yaml", 1, 1), semantic)
    timeout = Settings.resolve({}, None).kafka_timeout
    factory = SimulatedFactory(egress, folder, timeout, "run", world=world)
    workers: object = LosingWorkers(world, fails=fails)
    lanes = TaskLanes(factory, workers, UntilStopped(threading.Event()))  # type: ignore[arg-type] # in its place
    return lanes, [staged(folder, batch, range(5), frozenset(), lanes=2) for batch in range(2)]


SEMANTICS = [DeliverySemantic.AT_LEAST_ONCE, DeliverySemantic.EXACTLY_ONCE]


@pytest.mark.parametrize("semantic", SEMANTICS)
@pytest.mark.parametrize("is_short", [False, True], ids=["long tasks", "short tasks"])
def test_records_count_once_if_the_result_of_their_task_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, semantic: DeliverySemantic, *, is_short: bool
) -> None:
    """The task is repeated, and finds records published; in whatever number of tasks, and of calls."""
    if is_short:
        monkeypatch.setattr(tasks_module, "_TASK_TIME", timedelta(days=-1))
    lanes, batches = task_lanes(tmp_path, semantic)

    assert list(counts(lanes, batches)) == [(20, True), (0, True)]
    more = [staged(Folder.at(tmp_path), 2, range(3), frozenset(), lanes=2)]
    assert list(counts(lanes, more)) == [(6, True)]


@pytest.mark.parametrize("semantic", SEMANTICS)
def test_records_of_the_jobs_before_an_error_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, semantic: DeliverySemantic
) -> None:
    """Each lane has published a portion twice, of which an exactly-once egress has got two portions."""
    monkeypatch.setattr(tasks_module, "_TASK_TIME", timedelta(days=-1))
    jobs = iter([False])
    lanes, batches = task_lanes(tmp_path, semantic, lambda: next(jobs, True))
    published = counts(lanes, batches)

    assert next(published) == (8 if semantic is DeliverySemantic.EXACTLY_ONCE else 4, False)
    with pytest.raises(ValueError, match="a job"):
        next(published)
