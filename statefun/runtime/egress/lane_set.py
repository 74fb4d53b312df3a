# SPDX-License-Identifier: Apache-2.0
"""All lanes of one egress, and their factory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import attrs

from statefun.engine.letters import DeadLetterTopic
from statefun.engine.sinks import EgressRecord
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Staged
from statefun.runtime.egress.lane import Cluster, Lane, LaneBatch, Marker, UndeliveredError
from statefun.runtime.egress.patience import Patience, Tally
from statefun.runtime.egress.producers import (
    AtLeastOnce,
    ExactlyOnce,
    ShouldStop,
    Unconfirmed,
)
from statefun.runtime.egress.progress_topic import ProgressTopic
from statefun.runtime.egress.refusals import Place, Refusals

_PAUSE = timedelta(seconds=1)


class Published(NamedTuple):
    """Reports that a batch is published."""

    staged: Staged
    refused: int
    """The number of records that the cluster has refused since the last report."""


class Lanes(Protocol):
    """Publishes batches to one egress."""

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish ``batches``; report each one."""

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """Let readers see what is kept for them; return after which time to do so again."""

    def cancel(self) -> None:
        """Make a call in another thread end soon, with UndeliveredError."""

    def close(self) -> None:
        """Disconnect."""


class OpenLanes(Lanes, Protocol):
    """Lanes that the driver publishes."""

    def connect(self) -> None:
        """Connect ahead of the first batch, if there are no markers."""

    def open(self, query_id: str, lanes: int, known_runs: Collection[str]) -> None:
        """Connect this number of lanes, and all lanes of earlier runs."""

    def claim(self) -> set[str]:
        """Keep other runs from publishing; return the runs that have published."""


class EgressFactory(Protocol):
    """Makes the lanes of one egress."""

    @property
    def id(self) -> str:
        """The egress's id."""

    @property
    def place(self) -> str:
        """The egress's id, and where it publishes."""

    @property
    def needs_progress(self) -> bool:
        """Whether markers of progress are kept where it publishes."""

    @property
    def has_tasks(self) -> bool:
        """Whether Spark tasks can publish."""

    def driver_lanes(
        self, should_stop: Callable[[], bool], pause: Callable[[timedelta], bool]
    ) -> OpenLanes:
        """Return lanes for the driver."""


class Counted(Protocol):
    """Counts refused records."""

    @property
    def count(self) -> int:
        """The number of records so far."""

    def tell_rest(self) -> None:
        """Tell of those that were not told of."""


class LaneMaker(Protocol):
    """Makes lanes for the driver."""

    @property
    def id(self) -> str:
        """The egress's id."""

    @property
    def needs_progress(self) -> bool:
        """Whether markers of progress are kept where it publishes."""

    def create_progress(self, query_id: str, lanes: int) -> tuple[Any, int]:
        """Create the place for markers, if there is one; return it, and the number of lanes."""

    def refusals(self, should_stop: ShouldStop) -> Counted:
        """Return the handler of refused records."""

    def lane(self, number: int, progress: Any, refusals: Any, turn: Turn) -> Lane:
        """Return a lane."""


class Turn(Protocol):
    """Decides how long a lane may go on."""

    def should_stop(self, stalled: timedelta) -> bool:
        """Return whether to give up after such a time without progress."""

    def is_over(self) -> bool:
        """Return whether to end after the present chunk."""

    def pause(self, time: timedelta) -> bool:
        """Wait before the next attempt; tell whether to give up."""


@attrs.frozen
class LaneFactory:
    """Makes the lanes of one egress; travels to Spark tasks."""

    egress: KafkaEgress
    checkpoint: Folder
    kafka_timeout: timedelta
    run: str
    """The id of the application's run."""
    dead_letters: KafkaEgress | None = None
    """The egress of dead letters, if there is one."""
    has_tasks: ClassVar[bool] = True

    @property
    def id(self) -> str:
        """The egress's id."""
        return str(self.egress.id)

    @property
    def place(self) -> str:
        """The egress's id, and its cluster."""
        return f"{self.egress.id} {self.egress.address}"

    def driver_lanes(
        self, should_stop: Callable[[], bool], pause: Callable[[timedelta], bool]
    ) -> DriverLanes:
        """Return lanes for the driver."""
        return DriverLanes(self, should_stop, pause)

    @property
    def needs_progress(self) -> bool:
        """Whether the cluster stores markers of progress."""
        return self.egress.delivery_semantic is DeliverySemantic.EXACTLY_ONCE

    def create_progress(self, query_id: str, lanes: int) -> tuple[ProgressTopic, int]:
        """Create the place for markers in the cluster, if the egress needs it.

        Returns:
            The place, and the number of lanes, which includes the lanes of earlier runs.

        Raises:
            KafkaError: if that fails.
        """
        progress = ProgressTopic(self.egress, query_id)
        if not self.needs_progress:
            return progress, lanes
        return progress, progress.create(lanes, self.kafka_timeout)

    def refusals(
        self, should_stop: ShouldStop, *, alone: bool = False, written: Collection[Place] = ()
    ) -> Refusals:
        """Return the handler of refused records, which continues from a former one."""
        letters = self.dead_letters
        elsewhere = None if letters is None or letters.id == self.egress.id else letters
        write = None if elsewhere is None else partial(_write_letters, elsewhere, should_stop)
        return Refusals(
            self.egress, DeadLetterTopic.of(letters), write, alone=alone, written=written
        )

    def lane(
        self,
        number: int,
        progress: ProgressTopic,
        refusals: Refusals,
        turn: Turn,
        marker: Marker | None = None,
    ) -> Lane:
        """Return a lane.

        Args:
            number: the number of the lane.
            progress: the place of markers in the cluster, if the egress needs it.
            refusals: handles refused records.
            turn: decides how long the lane may go on.
            marker: the lane's progress, if known.
        """
        egress = self.egress
        patience, losses = Patience(egress), Tally(egress, "lost")
        stop = turn.should_stop

        def connect() -> Cluster:
            match egress.delivery_semantic:
                case DeliverySemantic.NONE:
                    return Unconfirmed(egress, stop, patience, losses)
                case DeliverySemantic.AT_LEAST_ONCE:
                    return AtLeastOnce(egress, stop, patience, refusals)
                case DeliverySemantic.EXACTLY_ONCE:
                    return ExactlyOnce(egress, stop, patience, refusals, progress, number)

        return Lane(
            f"egress {egress.id}",
            self.run,
            self.checkpoint,
            connect,
            waiting(patience, turn),
            is_late=turn.is_over,
            marker=marker,
        )


def waiting(patience: Patience, turn: Turn) -> Callable[[str], None]:
    """Return how a lane waits before its next attempt, given the reason."""

    def wait(reason: str) -> None:
        patience.wait(reason)
        if turn.pause(_PAUSE):
            raise UndeliveredError

    return wait


def _write_letters(
    egress: KafkaEgress, should_stop: ShouldStop, letters: Sequence[EgressRecord]
) -> None:
    """Write dead letters to another egress than the records' one.

    No transaction covers both: after a crash they may come again.
    """
    refusals = Refusals(egress, DeadLetterTopic.of(egress), alone=True)
    cluster = AtLeastOnce(egress, should_stop, Patience(egress), refusals)
    try:
        cluster.write(letters, Marker(-1, 0, b"", "", ""))
    finally:
        cluster.close()


@attrs.frozen
class _UntilStopped:
    """The turn of a lane in the driver, which only a stop ends."""

    is_over: Callable[[], bool]
    pause: Callable[[timedelta], bool]

    def should_stop(self, stalled: timedelta) -> bool:
        del stalled
        return self.is_over()


class DriverLanes:
    """Lanes that the driver publishes, one after the other."""

    def __init__(
        self,
        factory: LaneMaker,
        should_stop: Callable[[], bool],
        pause: Callable[[timedelta], bool],
    ) -> None:
        self._factory = factory
        self._turn = _UntilStopped(should_stop, pause)
        self._refusals = factory.refusals(self._turn.should_stop)
        self._lanes: list[Lane] = []

    def connect(self) -> None:
        """Connect a lane ahead of the first batch, if the cluster has no markers.

        Raises:
            ConfigurationError: if the egress's properties are wrong.
        """
        if not self._factory.needs_progress:
            self._create("", 1)
            for lane in self._lanes:
                lane.connect()

    def open(self, query_id: str, lanes: int, known_runs: Collection[str]) -> None:
        """Connect this number of lanes, and all lanes of earlier runs; :meth:`claim` them then.

        An older copy of the checkpoint may be behind in one of the earlier runs' lanes alone.

        Raises:
            StatefunError: if nothing can be published.
        """
        self._create(query_id, lanes)
        for lane in self._lanes:
            lane.open(known_runs)

    def claim(self) -> set[str]:
        """Keep other runs from publishing; return the runs that have published."""
        return {lane.claim() for lane in self._lanes}

    def claim_more(self, query_id: str, lanes: int) -> None:
        """Connect this number of lanes, and claim all if there were fewer, as in a first run.

        Raises:
            StatefunError: if they cannot be created, or another run has claimed one of them.
        """
        if self._create(query_id, lanes) and self._factory.needs_progress:
            self.claim()

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish ``batches``; report each one."""
        for staged in batches:
            before = self._refusals.count
            self.claim_more(staged.manifest.query_id, staged.lanes)
            for number, lane in enumerate(self._lanes[: staged.lanes]):
                lane.publish(LaneBatch.of(staged, self._factory.id, number))
            yield Published(staged, self._refusals.count - before)

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """Let readers see what has been kept for long enough, or all if nothing follows."""
        waits = [lane.tend(is_last=is_last) for lane in self._lanes]
        return min((wait for wait in waits if wait is not None), default=None)

    def cancel(self) -> None:
        """Nothing to do: the lanes ask whether they should stop."""

    def close(self) -> None:
        """Disconnect."""
        for lane in self._lanes:
            lane.close()
        self._refusals.tell_rest()

    def _create(self, query_id: str, lanes: int) -> bool:
        """Add lanes up to this number; return whether there were fewer."""
        before = len(self._lanes)
        if before < lanes:
            progress, there = self._factory.create_progress(query_id, lanes)
            for number in range(before, there):
                lane = self._factory.lane(number, progress, self._refusals, self._turn)
                self._lanes.append(lane)
        return before < lanes
