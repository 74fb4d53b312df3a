# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import combinations, product

import pytest
from simulation import Broker, Chaos, Driver, ExactlyOnceModel, MemoryFolder, simulate

from statefun.protocol.runtime_pb2 import EffectStream
from statefun.runtime.effects import EGRESS_SCHEMA, EffectRows, EgressRecord
from statefun.runtime.egress.lane import Cluster, Lane, LaneBatch, Marker, UncertainError
from statefun.runtime.egress.runs import Runs
from statefun.runtime.outbox import Leftovers, effect_stream
from statefun.sdk.errors import CheckpointError


@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_publishing_survives_what_a_scheduler_thinks_of(first: int) -> None:
    """Nothing is lost, nothing comes twice, and all is in order, for 250 seeds each."""
    wrong = {seed: simulate(seed) for seed in range(first, first + 250)}

    assert not {seed: text for seed, text in wrong.items() if text}


def test_a_seed_replays_exactly() -> None:
    """The same seed ends in the same way, in every detail."""
    sabotage = with_cluster(MarkerBeforeFence)
    failing = next(seed for seed in range(2000) if simulate(seed, sabotage))

    assert simulate(failing, sabotage) == simulate(failing, sabotage)


class MarkerBeforeFence(ExactlyOnceModel):
    """Reads the marker while somebody else may still move it."""

    def open(self) -> Marker | None:
        """Read, then fence."""
        marker = self._broker.markers.get(self._id)
        super().open()
        return marker


class PatientWithItsProducer(ExactlyOnceModel):
    """Asks the same producer again when an answer is missing."""

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:
        """Try until it works."""
        sent = list(records)
        for _ in range(20):
            try:
                super().write(sent, marker)
            except UncertainError as error:
                if str(error) == "fenced":
                    raise
            else:
                return
        raise UncertainError("tried for long enough")


class MarkerApart(ExactlyOnceModel):
    """Writes the marker in a transaction of its own."""

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:
        """Commit twice."""
        super().write(records, self._broker.markers.get(self._id, Marker(-1, 0, b"", "", "")))
        super().write([], marker)


class KeepsWhatWillRunAgain(Driver):
    """Publishes what was staged, whether or not Spark has committed it."""

    def _recover(self, newest: int) -> Leftovers:
        return self._outbox.recover(10**6)


class ForgetsLanes(Driver):
    """Opens the lanes that it uses, and none of those that earlier runs have used."""

    def _opened_lanes(self) -> int:
        return self._lane_count


def with_cluster(cluster: Callable[[Broker, str], Cluster]) -> type[Driver]:
    """Return a driver whose exactly-once egresses take other steps."""

    class Sabotaged(Driver):
        def _cluster(self, broker: Broker, id_: str) -> Cluster:
            return cluster(broker, id_)

    return Sabotaged


class LeavesLanesToAnybody(Lane):
    """Publishes in lanes that another run has taken over."""

    def _accepted(self, marker: Marker) -> Marker:
        return super()._accepted(marker._replace(owner=self._run))


class TakesWhatAnybodyPublished(Lane):
    """Goes on behind what was published with a copy of the checkpoint."""

    def open(self, known_runs: Collection[str]) -> None:
        """Know everybody."""
        super().open({*map("run-{}".format, range(1000))})


class ForgetsWhoHasPublished(Runs):
    """Keeps no run but the one that there is."""

    def forget_all_but(self, publishers: Collection[str]) -> None:
        """Forget them as well."""
        super().forget_all_but(())


class ForgetsRuns(Driver):
    """Takes what it has published itself for somebody else's."""

    runs_type = ForgetsWhoHasPublished


def with_lane(lane: type[Lane]) -> type[Driver]:
    """Return a driver that has other lanes."""

    class Sabotaged(Driver):
        lane_type = lane

    return Sabotaged


@pytest.mark.parametrize(
    "driver",
    [
        with_cluster(MarkerBeforeFence),
        with_cluster(PatientWithItsProducer),
        with_cluster(MarkerApart),
        KeepsWhatWillRunAgain,
        ForgetsLanes,
        ForgetsRuns,
    ],
    ids=[
        "marker before fence",
        "same producer again",
        "marker apart",
        "uncommitted batches",
        "lanes of earlier runs",
        "runs forgotten",
    ],
)
def test_a_wrong_protocol_is_found(driver: type[Driver]) -> None:
    """Every rule matters: a driver that breaks one is found out."""
    assert any(simulate(seed, driver) for seed in range(3000))


@pytest.mark.parametrize(
    ("seed", "lane"), [(2322, LeavesLanesToAnybody), (1837, TakesWhatAnybodyPublished)]
)
def test_copies_that_run_are_told_apart(seed: int, lane: type[Lane]) -> None:
    """It takes owners and publishers; the seeds are the first ones of all that find it."""
    assert simulate(seed) == ""
    assert simulate(seed, with_lane(lane))


class Start:
    """A driver that starts on its own copy of a checkpoint, and publishes one record, by steps."""

    steps = 6

    def __init__(self, name: str, broker: Broker, chaos: Chaos, lane: int) -> None:
        self._folder = MemoryFolder("/c", {"/c/commits/0": b"v1"}, chaos)
        lanes = [
            Lane("a/exactly", name, self._folder, self._connect(broker, number), lambda _: None)
            for number in range(2)
        ]
        batch = LaneBatch(1, name.encode(), (self._stream(name),))
        self._left: Iterator[Callable[[], object]] = iter(
            [
                *(partial(each.open, {name}) for each in lanes),
                *(each.claim for each in lanes),
                partial(self._folder.child("commits").write, "1", b"v1"),
                partial(lanes[lane].publish, batch),
            ]
        )

    def step(self) -> None:
        """Take one more step, unless the driver was refused."""
        try:
            next(self._left, lambda: None)()
        except CheckpointError:
            self._left = iter([])

    def _connect(self, broker: Broker, number: int) -> Callable[[], Cluster]:
        return lambda: ExactlyOnceModel(broker, f"a/exactly/{number}")

    def _stream(self, name: str) -> EffectStream:
        rows = EffectRows(EGRESS_SCHEMA)
        rows.append(EgressRecord("topic", None, name.encode(), None))
        return effect_stream(rows.take(), 1)


@pytest.mark.parametrize("lanes", [*product(range(2), repeat=2)])
def test_of_two_drivers_on_two_copies_one_publishes(lanes: tuple[int, int]) -> None:
    """However their starts are interleaved: what one has published, the other one refuses."""
    published: Counter[int] = Counter()
    for turns in combinations(range(2 * Start.steps), Start.steps):
        chaos = Chaos(0)
        chaos.active = False
        broker = Broker(chaos)
        first, second = (
            Start(name, broker, chaos, lane) for name, lane in zip("ab", lanes, strict=True)
        )
        for turn in range(2 * Start.steps):
            (first if turn in turns else second).step()
        published[len(broker.log["a/exactly"])] += 1

    assert published.keys() <= {0, 1}
    assert published[0] <= 48  # of 924: one starts in the midst of the other's claims
