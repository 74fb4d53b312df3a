# SPDX-License-Identifier: Apache-2.0
"""The lanes of egresses whose records a connector writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pkgutil import resolve_name

import attrs

from statefun.module.connectors import ConnectorEgress, owner_of
from statefun.runtime.checkpoint.connector_folder import connector_folder
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.egress.connector_cluster import CheckedCluster, KeptProgress
from statefun.runtime.egress.lane import Cluster, Lane
from statefun.runtime.egress.lane_set import DriverLanes, LaneTurn, pausing
from statefun.runtime.egress.patience import Patience

_LANES = "lanes"


@attrs.frozen
class Writing:
    """The argument of a connector's writer, which returns the connection of one lane."""

    egress: ConnectorEgress
    query_id: str
    """The id of the checkpoint, for markers: another application may write to the same place.

    Empty for an egress that is not exactly-once: it may connect before its checkpoint has an id."""
    lane: int
    """The number of the lane: records of one sender always have the same lane."""
    should_stop: Callable[[timedelta], bool]
    """Returns whether to give up, with UndeliveredError, given the time without progress so far."""
    waits: Callable[[str], None]
    """Call it now and then while records wait, with the reason, which is logged."""
    went_well: Callable[[], None]
    """Call it when records are written, so that they no longer count as waiting."""
    has_written: Callable[[int], None] = lambda _: None
    """Call it during ``write`` with the number of records that are safe already, from the first on.

    After a crash these records are not written again. It is useful where one call may take long."""


@attrs.frozen
class ConnectorLaneFactory:
    """Makes the lanes of one egress of a connector; only the driver publishes them."""

    egress: ConnectorEgress
    checkpoint: Folder
    run: str
    """The id of the application's run."""

    @property
    def needs_progress(self) -> bool:
        """Whether the connector stores markers of progress."""
        return self.egress.is_exactly_once

    def driver_lanes(self, turn: LaneTurn) -> DriverLanes:
        """Return lanes for the driver."""

        def missing_lanes(query_id: str, first: int, lanes: int) -> list[Lane]:
            if self.needs_progress:
                lanes = self._most_lanes(lanes)
            else:
                query_id = ""
            return [self._lane(number, query_id, turn) for number in range(first, lanes)]

        return DriverLanes(self, missing_lanes)

    def _most_lanes(self, lanes: int) -> int:
        """Return the largest number of lanes of any run; the checkpoint keeps it."""
        folder = connector_folder(self.checkpoint, self.egress.id)
        if folder.has(_LANES):
            lanes = max(lanes, int(read_framed(folder, _LANES)))
        write_framed(folder, _LANES, b"%d" % lanes)
        return lanes

    def _lane(self, number: int, query_id: str, turn: LaneTurn) -> Lane:
        egress, patience = self.egress, Patience(self.egress)

        def checked_cluster(on_written: Callable[[int], None]) -> CheckedCluster:
            def connection(has_written: Callable[[int], None]) -> object:
                signals = turn.should_stop, patience.wait, patience.end, has_written
                return resolve_name(egress.writer)(Writing(egress, query_id, number, *signals))

            return CheckedCluster(owner_of(egress), connection, on_written)

        def connect() -> Cluster:
            if self.needs_progress:
                return checked_cluster(lambda _: None)
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
