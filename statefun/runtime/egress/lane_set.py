# SPDX-License-Identifier: Apache-2.0
"""All lanes of one egress, and how they are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple, Protocol

import attrs

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
from statefun.runtime.rows.effects import EgressRecord
from statefun.runtime.rows.letters import DeadLetterTopic

_PAUSE = timedelta(seconds=1)


class Published(NamedTuple):
    """A batch that is published."""

    staged: Staged
    refused: int
    """How many records the cluster has refused, since the last one."""


class Lanes(Protocol):
    """Publishes batches to one egress."""

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish ``batches``; yield each that is."""

    def cancel(self) -> None:
        """Let what runs in another thread end soon, with UndeliveredError."""

    def close(self) -> None:
        """Disconnect."""


class Turn(Protocol):
    """For how long a lane may go on."""

    def should_stop(self, stalled: timedelta) -> bool:
        """Tell whether to give up when nothing has moved for so long."""

    def is_over(self) -> bool:
        """Tell whether to end, at the next good place."""

    def pause(self, time: timedelta) -> bool:
        """Wait for better times; tell whether to give up."""


@attrs.frozen
class LaneFactory:
    """Makes the lanes of one egress; travels to Spark tasks."""

    egress: KafkaEgress
    checkpoint: Folder
    kafka_timeout: timedelta
    run: str
    """The id of the application's run."""
    dead_letters: KafkaEgress | None = None
    """The egress that dead letters go to, if there is one."""
    others: tuple[str, ...] = ()
    """The ids of the application's exactly-once egresses to the same cluster."""

    @property
    def needs_progress(self) -> bool:
        """Whether the cluster keeps note of what is published."""
        return self.egress.delivery_semantic is DeliverySemantic.EXACTLY_ONCE

    def create_progress(self, query_id: str, lanes: int) -> tuple[ProgressTopic, int]:
        """Make sure that the cluster can keep note of what is published, if it has to.

        Returns:
            Where it does, and how many lanes there are, those of earlier runs included.

        Raises:
            KafkaError: if it cannot.
        """
        progress = ProgressTopic(self.egress, query_id, self.others)
        if not self.needs_progress:
            return progress, lanes
        return progress, progress.create(lanes, self.kafka_timeout)

    def refusals(
        self, should_stop: ShouldStop, *, alone: bool = False, written: Collection[Place] = ()
    ) -> Refusals:
        """Return what settles records that the cluster refuses, which goes on from another one."""
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
            number: which one.
            progress: where the cluster keeps note of what is published, if it has to.
            refusals: settles what the cluster refuses.
            turn: for how long it may go on.
            marker: how far it is published, as far as that is known.
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

        def wait(reason: str) -> None:
            patience.wait(reason)
            if turn.pause(_PAUSE):
                raise UndeliveredError

        return Lane(
            f"egress {egress.id}",
            self.run,
            self.checkpoint,
            connect,
            wait,
            is_late=turn.is_over,
            marker=marker,
        )


def _write_letters(
    egress: KafkaEgress, should_stop: ShouldStop, letters: Sequence[EgressRecord]
) -> None:
    """Write dead letters to another egress than the records were for.

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
    """The turn of the driver, which has no other end."""

    is_over: Callable[[], bool]
    pause: Callable[[timedelta], bool]

    def should_stop(self, stalled: timedelta) -> bool:
        del stalled
        return self.is_over()


class DriverLanes:
    """Lanes that the driver publishes, one after the other."""

    def __init__(
        self,
        factory: LaneFactory,
        should_stop: Callable[[], bool],
        pause: Callable[[timedelta], bool],
    ) -> None:
        self._factory = factory
        self._turn = _UntilStopped(should_stop, pause)
        self._refusals = factory.refusals(self._turn.should_stop)
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

    def claim_more(self, query_id: str, lanes: int) -> None:
        """Connect so many lanes, and claim all if there were fewer: a first run could not earlier.

        Raises:
            StatefunError: if they cannot be created, or somebody else has claimed one of them.
        """
        if self._create(query_id, lanes) and self._factory.needs_progress:
            self.claim()

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish ``batches``; yield each that is."""
        for staged in batches:
            before = self._refusals.count
            self.claim_more(staged.manifest.query_id, staged.lanes)
            for number, lane in enumerate(self._lanes[: staged.lanes]):
                lane.publish(LaneBatch.of(staged, str(self._factory.egress.id), number))
            yield Published(staged, self._refusals.count - before)

    def cancel(self) -> None:
        """Nothing to do: the lanes ask whether they should stop."""

    def close(self) -> None:
        """Disconnect."""
        for lane in self._lanes:
            lane.close()
        self._refusals.tell_rest()

    def _create(self, query_id: str, lanes: int) -> bool:
        """Make sure that there are so many lanes; return whether there were fewer."""
        before = len(self._lanes)
        if before < lanes:
            progress, there = self._factory.create_progress(query_id, lanes)
            for number in range(before, there):
                lane = self._factory.lane(number, progress, self._refusals, self._turn)
                self._lanes.append(lane)
        return before < lanes
