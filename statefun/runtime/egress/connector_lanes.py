# SPDX-License-Identifier: Apache-2.0
"""Makes the lanes of egresses whose records a connector writes."""

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

    After a crash, these records are not written again. This helps if one call of ``write`` may take long."""


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

    def _most_lanes(self, lanes: int) -> int:
        """Return ``lanes``, or the number of lanes of an earlier run if larger; store it in the checkpoint."""
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
