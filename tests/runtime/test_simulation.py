# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from inspect import isclass
from itertools import combinations, product

import pytest
from simulation.chaos import Chaos
from simulation.cluster import Broker, ExactlyOnceModel
from simulation.disk import Disk, MemoryFolder
from simulation.run import simulate
from simulation.sabotage import SABOTAGES, sabotaged

from statefun.compilation import MODULES, is_compiled
from statefun.engine.effects import EffectRows
from statefun.engine.sinks import EgressRecord
from statefun.protocol.runtime_pb2 import EffectStream
from statefun.runtime.checkpoint.outbox import effect_stream
from statefun.runtime.egress.lane import Cluster, Lane, LaneBatch
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.sdk.errors import CheckpointError

_MOST_SEEDS = 2000
"""So many are tried on a runtime that is sabotaged."""


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_the_runtime_survives_what_a_scheduler_thinks_of(first: int) -> None:
    """Nothing is lost, nothing comes twice, and all is in order, for 100 seeds each."""
    wrong = {seed: simulate(seed) for seed in range(first, first + 100)}

    assert not {seed: text for seed, text in wrong.items() if text}


def found_out(name: str) -> int | None:
    """Return a seed that finds a sabotage, and finds nothing without the sabotage."""
    seeds: tuple[int, ...] = (*SABOTAGES[name].seeds, *range(_MOST_SEEDS))
    for seed in seeds:
        with sabotaged(name):
            found = simulate(seed)
        if found and not simulate(seed):
            return seed
    return None


def test_a_seed_replays_exactly() -> None:
    """The same seed ends in the same way, in every detail."""
    seed = found_out("marker-apart")
    assert seed is not None
    with sabotaged("marker-apart"):
        assert simulate(seed) == simulate(seed) != ""


@pytest.mark.parametrize("name", SABOTAGES)
def test_every_rule_matters(name: str) -> None:
    """A runtime that breaks one is found out."""
    changed = {
        change.owner.__module__ for change in SABOTAGES[name].changes if isclass(change.owner)
    }
    if is_compiled() and not changed.isdisjoint(MODULES):
        pytest.skip("compiled methods call each other directly; the run in Python breaks the rule")
    assert found_out(name) is not None


class Start:
    """A driver that starts on its own copy of a checkpoint, and publishes one record, by steps."""

    steps = 6

    def __init__(self, name: str, broker: Broker, chaos: Chaos, lane: int) -> None:
        disk = Disk()
        disk.files["/c/commits/0"] = b"v1"
        self._folder = MemoryFolder("/c", disk, chaos)
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
        return lambda: ExactlyOnceModel(broker, f"query/a/exactly/{number}")

    def _stream(self, name: str) -> EffectStream:
        rows = EffectRows()
        rows.append(EgressRecord("topic", None, name.encode(), None))
        return effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), 1)


@pytest.mark.parametrize("lanes", [*product(range(2), repeat=2)])
def test_of_two_drivers_on_two_copies_one_publishes(lanes: tuple[int, int]) -> None:
    """In any interleaving of their starts, the other one refuses after one has published."""
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
