# SPDX-License-Identifier: Apache-2.0
"""Makes the lanes of an egress to Kafka: their producers, their markers, and their handling of refusals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial

import attrs

from statefun.engine.letters import DeadLetterTopic
from statefun.engine.sinks import EgressRecord
from statefun.module.model import DeliverySemantic, KafkaEgress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.egress.lane import Cluster, Lane, UncertainError
from statefun.runtime.egress.lane_set import DriverLanes, LaneTurn, pausing
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.patience import Patience, RecordCounter
from statefun.runtime.egress.producers import AtLeastOnce, ExactlyOnce, ShouldStop
from statefun.runtime.egress.progress_topic import ProgressTopic
from statefun.runtime.egress.refusals import OutboxPlace, Refusals
from statefun.runtime.egress.unconfirmed import Unconfirmed


@attrs.frozen
class KafkaLaneFactory:
    """Makes the lanes of one egress to Kafka; Spark sends this object to tasks."""

    egress: KafkaEgress
    checkpoint: Folder
    kafka_timeout: timedelta
    run: str
    """The id of the application's run."""
    dead_letters: KafkaEgress | None = None
    """The egress that has the topic of dead letters; None if no egress has one."""

    @classmethod
    def all_of(
        cls, egresses: Iterable[KafkaEgress], checkpoint: Folder, timeout: timedelta, run: str
    ) -> list[KafkaLaneFactory]:
        """Return a factory for each egress, which makes the lanes of this egress.

        Args:
            egresses: all egresses to Kafka; at most one of them has a topic for dead letters.
            checkpoint: the checkpoint of the application.
            timeout: how long a cluster may take to create a progress topic.
            run: the id of the application's run.
        """
        every = list(egresses)
        letters = next((egress for egress in every if egress.dead_letter_topic), None)
        return [cls(egress, checkpoint, timeout, run, letters) for egress in every]

    @property
    def needs_progress(self) -> bool:
        """Whether Kafka stores markers of the lanes' progress."""
        return self.egress.delivery_semantic is DeliverySemantic.EXACTLY_ONCE

    def driver_lanes(self, turn: LaneTurn) -> DriverLanes:
        """Return the lanes of the egress for publishing by the driver; ``turn`` says when publishing must end.

        All these lanes share one handler of refused records.
        """
        refusals = self.refusals(turn)

        def missing_lanes(query_id: str, first: int, lanes: int) -> list[Lane]:
            progress, lanes = self.create_progress(query_id, lanes)
            return [self.lane(number, progress, refusals, turn) for number in range(first, lanes)]

        return DriverLanes(self, missing_lanes, refusals.counter)

    def create_progress(self, query_id: str, lanes: int) -> tuple[ProgressTopic, int]:
        """If the egress is exactly-once, create its progress topic, with a partition for each lane.

        Returns:
            The topic, and the number of lanes. If the egress is exactly-once, the number includes the lanes
            of earlier runs; otherwise the topic does not exist, and the number is ``lanes``.

        Raises:
            KafkaError: if the cluster cannot create the topic.
        """
        progress = ProgressTopic(self.egress, query_id)
        if not self.needs_progress:
            return progress, lanes
        return progress, progress.create(lanes, self.kafka_timeout)

    def end_former(self, query_id: str, turn: LaneTurn) -> None:
        """End the transactions that a lost application has left open; its query had the id ``query_id``.

        Raises:
            KafkaError: if no broker answers.
            UndeliveredError: if ``turn`` ends publishing.
        """
        progress, patience = ProgressTopic(self.egress, query_id), Patience(self.egress)
        refusals, pause = self.refusals(turn), pausing(patience, turn)

        def try_to_end(lane: int) -> bool:
            stop = turn.should_stop
            with closing(
                ExactlyOnce(self.egress, stop, patience, refusals, progress, lane)
            ) as cluster:
                try:
                    cluster.fence()
                except UncertainError as error:
                    pause(str(error))
                    return False
            return True

        for lane in range(progress.lanes(self.kafka_timeout)):
            while not try_to_end(lane):
                pass

    def refusals(
        self, turn: LaneTurn, *, alone: bool = False, written: Collection[OutboxPlace] = ()
    ) -> Refusals:
        """Return a new handler of refused records.

        Args:
            turn: decides how long writing dead letters may take.
            alone: :attr:`Refusals.alone` of the former handler, which the new one replaces.
            written: :attr:`Refusals.written` of that handler.
        """
        letters = self.dead_letters
        other_egress = None if letters is None or letters.id == self.egress.id else letters
        write = partial(_write_letters, other_egress, turn.should_stop) if other_egress else None
        return Refusals(
            self.egress, DeadLetterTopic.of(letters), write, alone=alone, written=written
        )

    def lane(
        self,
        number: int,
        progress: ProgressTopic,
        refusals: Refusals,
        turn: LaneTurn,
        marker: Marker | None = None,
    ) -> Lane:
        """Return a lane of the egress, which publishes records until the lane's time is over.

        Args:
            number: the number of the lane.
            progress: the progress topic; unused unless the egress is exactly-once.
            refusals: handles records that the cluster refuses for good.
            turn: decides when the lane stops publishing.
            marker: the lane's progress; None if it is not known.
        """
        egress = self.egress
        patience, losses = Patience(egress), RecordCounter(egress, "lost")
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
            egress.label,
            self.run,
            self.checkpoint,
            connect,
            pausing(patience, turn),
            is_late=turn.is_over,
            marker=marker,
        )


def _write_letters(
    egress: KafkaEgress, should_stop: ShouldStop, letters: Sequence[EgressRecord]
) -> None:
    """Write dead letters to ``egress``; the refused records themselves were for another egress.

    No transaction covers both egresses: after a crash the dead letters may be written again.
    """
    refusals = Refusals(egress, DeadLetterTopic.of(egress), alone=True)
    cluster = AtLeastOnce(egress, should_stop, Patience(egress), refusals)
    try:
        cluster.write(letters, Marker(-1, 0, b"", "", ""))
    finally:
        cluster.close()
