# SPDX-License-Identifier: Apache-2.0
"""Makes the lanes of egresses whose records a connector writes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pkgutil import resolve_name

import attrs

from statefun.module.connectors import ConnectorEgress, owner_of
from statefun.runtime.checkpoint.connector_folder import connector_folder
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.egress.connector_cluster import CheckedCluster, KeptProgress
from statefun.runtime.egress.lane import Cluster, Lane, UncertainError
from statefun.runtime.egress.lane_set import DriverLanes, LaneTurn, pausing
from statefun.runtime.egress.patience import Patience

_LANES = "lanes"


@attrs.frozen
class Writing:
    """The argument of a connector's writer; the writer must return the connection of one lane."""

    egress: ConnectorEgress
    query_id: str
    """The id of the checkpoint, which must be part of the names of markers.

    Otherwise two applications that write to the same system could overwrite each other's markers. The text is
    empty for an egress that is not exactly-once: it may connect before its checkpoint has an id."""
    lane: int
    """The number of the lane: all records of one sender go through the same lane."""
    should_stop: Callable[[timedelta], bool]
    """Returns whether the connection must raise UndeliveredError; its argument is the time without progress."""
    waits: Callable[[str], None]
    """Must be called now and then while records cannot be written, with the reason, which is logged."""
    went_well: Callable[[], None]
    """Must be called when records are written, after which they no longer count as waiting."""
    has_written: Callable[[int], None] = lambda _: None
    """May be called during ``write``, with the number of the call's first records that are safely stored.

    If the call ends with an error or a crash, these records count as published, and the next run does not write them
    again. This helps if one call of ``write`` may take long."""
    folder: Folder | None = None
    """A folder of the checkpoint, for files of the connector; statefun passes one in any case.

    The names of the files must begin with ``lane.``: an ingress with the id of the egress may have others there."""


@attrs.frozen
class ConnectorLaneFactory:
    """Makes the lanes of one egress that a connector writes; only the driver publishes these lanes."""

    egress: ConnectorEgress
    checkpoint: Folder
    run: str
    """The id of the application's run."""

    @property
    def needs_progress(self) -> bool:
        """Whether the connector stores markers of the lanes' progress."""
        return self.egress.is_exactly_once

    def driver_lanes(self, turn: LaneTurn) -> DriverLanes:
        """Return the lanes of the egress, which the driver publishes until ``turn`` ends publishing."""

        def missing_lanes(query_id: str, first: int, lanes: int) -> list[Lane]:
            if self.needs_progress:
                lanes = self._most_lanes(lanes)
            else:
                query_id = ""
            return [self._lane(number, query_id, turn) for number in range(first, lanes)]

        return DriverLanes(self, missing_lanes)

    def end_former(self, query_id: str, turn: LaneTurn) -> None:
        """Claim the lanes of a lost application, and show readers the records that these lanes have gathered.

        Nobody else has these records any more: they count as published, so that their batches are deleted. The lanes
        may have published more than the checkpoint knows, so their markers are not compared with it.

        Args:
            query_id: the id that the query of the lost application had.
            turn: decides how long to try.

        Raises:
            ConnectorError: if the connector fails.
            UndeliveredError: if ``turn`` ends publishing.
        """
        patience = Patience(self.egress)
        pause = pausing(patience, turn)

        def try_to_end(lane: int) -> bool:
            try:
                with closing(self._connection(lane, query_id, turn, patience)) as cluster:
                    if (marker := cluster.open()) is not None:
                        cluster.write([], marker._replace(owner=self.run))
                        cluster.tend(is_last=True)
            except UncertainError as error:
                pause(str(error))
                return False
            return True

        for lane in range(self._earlier_lanes()):
            while not try_to_end(lane):
                pass

    def _most_lanes(self, lanes: int) -> int:
        """Return ``lanes``, or the number of lanes of an earlier run if larger; store it in the checkpoint."""
        lanes = max(lanes, self._earlier_lanes())
        write_framed(connector_folder(self.checkpoint, self.egress.id), _LANES, b"%d" % lanes)
        return lanes

    def _earlier_lanes(self) -> int:
        """Return the number of lanes of earlier runs, as the checkpoint has it; 0 if there was no such run."""
        folder = connector_folder(self.checkpoint, self.egress.id)
        return int(read_framed(folder, _LANES)) if folder.has(_LANES) else 0

    def _connection(
        self,
        lane: int,
        query_id: str,
        turn: LaneTurn,
        patience: Patience,
        on_written: Callable[[int], None] = lambda _: None,
    ) -> CheckedCluster:
        """Return a new connection of the connector for a lane."""

        def connect(has_written: Callable[[int], None]) -> object:
            signals = turn.should_stop, patience.wait, patience.end, has_written
            folder = connector_folder(self.checkpoint, self.egress.id)
            writing = Writing(self.egress, query_id, lane, *signals, folder)
            return resolve_name(self.egress.writer)(writing)

        return CheckedCluster(owner_of(self.egress), connect, on_written)

    def _lane(self, number: int, query_id: str, turn: LaneTurn) -> Lane:
        egress, patience = self.egress, Patience(self.egress)
        checked_cluster = partial(self._connection, number, query_id, turn, patience)

        def connect() -> Cluster:
            if self.needs_progress:
                return checked_cluster()
            return KeptProgress(
                connector_folder(self.checkpoint, egress.id), number, self.run, checked_cluster
            )

        return Lane(
            egress.label,
            self.run,
            self.checkpoint,
            connect,
            pausing(patience, turn),
            is_late=turn.is_over,
            chunk_records=egress.chunk_records,
        )
