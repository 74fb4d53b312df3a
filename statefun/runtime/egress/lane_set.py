# SPDX-License-Identifier: Apache-2.0
"""All lanes of one egress, as the driver publishes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import attrs

from statefun.module.connectors import ConnectorEgress
from statefun.module.model import KafkaEgress
from statefun.runtime.checkpoint.outbox import Staged
from statefun.runtime.egress.lane import Lane, LaneBatch, UndeliveredError
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.patience import Patience, RecordCounter

_PAUSE = timedelta(seconds=1)


class Published(NamedTuple):
    """A batch of which an egress has published all records, or some when publishing ends early."""

    staged: Staged
    written: int
    """The number of records that were written since the batch before this one was published.

    An earlier run may have written others, which do not count again."""
    refused: int
    """The number of records that the cluster has refused since the batch before this one was published."""
    is_whole: bool = True
    """Whether all records are published; if not, an error follows, and the next run publishes the rest."""

    @classmethod
    def of(cls, staged: Staged, handled: int, refused: int, *, is_whole: bool = True) -> Published:
        """Return the counts of a batch, given the number of its written or refused records, and that of its refused ones.

        A record may be refused before the portion with it is written; the portion that is never written counts nothing.
        """
        return cls(staged, max(0, handled - refused), refused, is_whole)


class Lanes(Protocol):
    """All lanes of one egress, through which batches are published."""

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish the egress's records of ``batches`` in order; yield a batch once its records are published.

        Before an error, yield the present batch with the records that are published already, so that they count.
        """

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """If the cluster gathers records, show readers the records that it gathered long enough ago.

        A cluster that gathers records stores them safely at once, and shows them to readers later.

        Args:
            is_last: whether no batch follows; then readers see all records.

        Returns:
            The time after which to call this again; None if no record is gathered.
        """

    def cancel(self) -> None:
        """Make a call of :meth:`publish` in another thread raise UndeliveredError soon."""

    def close(self) -> None:
        """Close all connections to the cluster."""


class LaneTurn(Protocol):
    """Decides how long a lane may publish: in the driver until the driver stops, in a task until its time is up."""

    def should_stop(self, stalled: timedelta) -> bool:
        """Return whether to stop publishing; ``stalled`` is the time without progress so far."""

    def is_over(self) -> bool:
        """Return whether publishing must end after the records that are being written at present."""

    def pause(self, time: timedelta) -> bool:
        """Wait up to ``time`` before the next attempt; return whether to stop publishing instead."""


class LaneFactory(Protocol):
    """Makes the lanes of one egress."""

    @property
    def egress(self) -> KafkaEgress | ConnectorEgress:
        """The egress whose lanes the factory makes."""

    @property
    def needs_progress(self) -> bool:
        """Whether the cluster of the egress stores markers of the lanes' progress."""

    def driver_lanes(self, turn: LaneTurn) -> DriverLanes:
        """Return the lanes of the egress, which the driver publishes until ``turn`` ends publishing."""

    def end_former(self, query_id: str, turn: LaneTurn) -> None:
        """Keep a lost application from publishing, and end what it has begun, so that readers see its records.

        Args:
            query_id: the id that the query of the lost application had, from whose snapshot the checkpoint was restored.
            turn: decides how long to try.

        Raises:
            StatefunError: if this run cannot publish to the egress.
            UndeliveredError: if ``turn`` ends publishing.
        """


@attrs.frozen
class UntilStopped:
    """Lets the driver publish lanes until an event is set."""

    stop: threading.Event

    def should_stop(self, stalled: timedelta) -> bool:
        """Return whether the event is set, whatever the time without progress is."""
        del stalled
        return self.stop.is_set()

    def is_over(self) -> bool:
        """Return whether the event is set."""
        return self.stop.is_set()

    def pause(self, time: timedelta) -> bool:
        """Wait up to ``time`` for the event; return whether it is set."""
        return self.stop.wait(time.total_seconds())


def pausing(patience: Patience, turn: LaneTurn) -> Callable[[str], None]:
    """Return a function that waits before a lane's next attempt.

    Its argument says why the last attempt failed; it is logged if records wait for long. The function raises
    UndeliveredError if ``turn`` says that publishing must end.
    """

    def wait(reason: str) -> None:
        patience.wait(reason)
        if turn.pause(_PAUSE):
            raise UndeliveredError

    return wait


class DriverLanes:
    """Lanes that the driver publishes, one after the other.

    Args:
        factory: the factory that has made these lanes.
        missing_lanes: returns the lanes that do not exist yet. Its arguments are the id of the
            checkpoint's query, the number of existing lanes, and the number of needed lanes. It
            creates the progress topic, if the egress needs one, and returns more lanes than
            needed if earlier runs had more.
        refused: counts the refused records of all lanes; None if the cluster refuses no records.
    """

    def __init__(
        self,
        factory: LaneFactory,
        missing_lanes: Callable[[str, int, int], list[Lane]],
        refused: RecordCounter | None = None,
    ) -> None:
        self._factory = factory
        self._missing_lanes = missing_lanes
        self._refused = refused
        self._lanes: list[Lane] = []
        self._query_id = ""
        """The id of the checkpoint's query; empty in a first run, whose batches have the id."""

    def connect(self) -> None:
        """Connect one lane before the first batch, if the cluster stores no markers.

        So wrong properties are found early, and the first batch need not wait for the connection.

        Raises:
            ConfigurationError: if the egress's properties are wrong.
        """
        if not self._factory.needs_progress:
            self._create("", 1)
            for lane in self._lanes:
                lane.connect()

    def open(self, query_id: str, lanes: int, known_runs: Collection[str]) -> None:
        """Connect ``lanes`` lanes to the egress, and the further lanes that earlier runs used; call :meth:`claim` next.

        The further lanes are needed because each lane may show that the checkpoint is an older copy.

        Raises:
            StatefunError: if this run cannot or must not publish to the egress.
        """
        self._query_id = query_id
        self._create(query_id, lanes)
        for lane in self._lanes:
            lane.open(known_runs)

    def claim(self) -> set[str]:
        """Claim all lanes, so that no other run publishes through them.

        Returns:
            The ids of the runs that have published last; an empty text stands for a lane without records.
        """
        return {lane.claim() for lane in self._lanes}

    def claim_more(self, query_id: str, lanes: int) -> None:
        """Create the missing lanes up to ``lanes``; if any was missing, claim all lanes of the egress.

        Raises:
            StatefunError: if lanes cannot be created, or another run has claimed one of them.
        """
        if self._create(query_id, lanes) and self._factory.needs_progress:
            self.claim()

    @property
    def markers(self) -> list[Marker | None]:
        """The progress of each lane; None if it is not known, or nothing is published."""
        return [lane.marker for lane in self._lanes]

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish the egress's records of ``batches`` in order; yield a batch once its records are published."""
        for staged in batches:
            handled, refused = self._count_handled(), self._count_refused()
            try:
                # A batch that was staged before the checkpoint was restored has a former id.
                self.claim_more(self._query_id or staged.manifest.query_id, staged.lanes)
                for number, lane in enumerate(self._lanes[: staged.lanes]):
                    lane.publish(LaneBatch.of(staged, str(self._factory.egress.id), number))
            except Exception:
                yield self._published(staged, handled, refused, is_whole=False)
                raise
            yield self._published(staged, handled, refused)

    def tend(self, *, is_last: bool = False) -> timedelta | None:
        """If a lane's cluster gathers records, show readers the records that it gathered long enough ago.

        A cluster that gathers records stores them safely at once, and shows them to readers later.

        Args:
            is_last: whether no batch follows; then readers see all records.

        Returns:
            The time after which to call this again; None if no record is gathered.
        """
        waits = [lane.tend(is_last=is_last) for lane in self._lanes]
        return min((wait for wait in waits if wait is not None), default=None)

    def cancel(self) -> None:
        """Do nothing: each lane asks its :class:`LaneTurn` whether to stop."""

    def close(self) -> None:
        """Close the connections of all lanes, and log the number of refused records."""
        for lane in self._lanes:
            lane.close()
        if self._refused is not None:
            self._refused.log_remaining()

    def _published(
        self, staged: Staged, handled: int, refused: int, *, is_whole: bool = True
    ) -> Published:
        """Return the counts of a batch, given those of all records before it."""
        handled, refused = self._count_handled() - handled, self._count_refused() - refused
        return Published.of(staged, handled, refused, is_whole=is_whole)

    def _count_handled(self) -> int:
        return sum(lane.handled for lane in self._lanes)

    def _count_refused(self) -> int:
        return 0 if self._refused is None else self._refused.count

    def _create(self, query_id: str, lanes: int) -> bool:
        """Create the missing lanes up to ``lanes``; return whether any lane was missing."""
        existing_lanes = len(self._lanes)
        if existing_lanes < lanes:
            self._lanes += self._missing_lanes(query_id, existing_lanes, lanes)
        return existing_lanes < lanes
