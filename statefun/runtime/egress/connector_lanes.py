# SPDX-License-Identifier: Apache-2.0
"""The lanes of egresses whose records a connector writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pkgutil import resolve_name
from typing import Any, ClassVar

import attrs

from statefun.module.connectors import ConnectorEgress, owner_of
from statefun.runtime.checkpoint.connector_folder import connector_folder
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.egress.connector_cluster import CheckedCluster, KeptProgress
from statefun.runtime.egress.lane import Cluster, Lane
from statefun.runtime.egress.lane_set import DriverLanes, Turn, waiting
from statefun.runtime.egress.patience import Patience

_LANES = "lanes"


@attrs.frozen
class Writing:
    """What a connector's writer gets: it returns the connection of one lane."""

    egress: ConnectorEgress
    query_id: str
    """The id of the checkpoint, for markers: another application may write to the same place.

    Empty where the egress is at least once, which may be connected before a checkpoint has an id."""
    lane: int
    """The number of the lane: records of one sender always have the same."""
    should_stop: Callable[[timedelta], bool]
    """Tells whether to give up, with UndeliveredError, after such a time without progress."""
    waits: Callable[[str], None]
    """To be called now and then while records wait, with the reason, for the log."""
    went_well: Callable[[], None]
    """To be called when records are written: then they no longer wait."""
    has_written: Callable[[int], None] = lambda _: None
    """To be called with a number of records of the present call of ``write`` that are safe, from its
    first one on: after a crash they are not written again. Of use where one call may take long."""


class _NoRefusals:
    """A connector has no policy for records that are refused for good: publishing ends."""

    count: ClassVar[int] = 0

    def tell_rest(self) -> None:
        """Have nothing to tell."""


@attrs.frozen
class ConnectorFactory:
    """Makes the lanes of one egress; the driver publishes them."""

    egress: ConnectorEgress
    checkpoint: Folder
    run: str
    """The id of the application's run."""
    has_tasks: ClassVar[bool] = False

    @property
    def id(self) -> str:
        """The egress's id."""
        return str(self.egress.id)

    @property
    def place(self) -> str:
        """The egress's id, and where it writes."""
        return f"{self.egress.id} {self.egress.address}"

    @property
    def needs_progress(self) -> bool:
        """Whether markers of progress are kept where it writes."""
        return self.egress.is_exactly_once

    def driver_lanes(
        self, should_stop: Callable[[], bool], pause: Callable[[timedelta], bool]
    ) -> DriverLanes:
        """Return lanes for the driver."""
        return DriverLanes(self, should_stop, pause)

    def create_progress(self, query_id: str, lanes: int) -> tuple[str, int]:
        """Leave markers to the connector; return the id of the checkpoint, and all lanes ever had."""
        if not self.needs_progress:
            return "", lanes
        folder = connector_folder(self.checkpoint, self.egress.id)
        if folder.has(_LANES):
            lanes = max(lanes, int(read_framed(folder, _LANES)))
        write_framed(folder, _LANES, b"%d" % lanes)
        return query_id, lanes

    def refusals(self, should_stop: Callable[[timedelta], bool]) -> _NoRefusals:
        """Return what counts refused records: nothing does."""
        del should_stop
        return _NoRefusals()

    def lane(self, number: int, progress: str, refusals: _NoRefusals, turn: Turn) -> Lane:
        """Return a lane."""
        del refusals
        egress, patience = self.egress, Patience(self.egress)

        def made(note: Callable[[int], None]) -> Cluster:
            def written(has_written: Callable[[int], None]) -> Any:
                ways = turn.should_stop, patience.wait, patience.end, has_written
                return resolve_name(egress.writer)(Writing(egress, progress, number, *ways))

            return CheckedCluster(owner_of(egress), written, note)

        def connect() -> Cluster:
            if self.needs_progress:
                return made(lambda _: None)
            return KeptProgress(
                connector_folder(self.checkpoint, egress.id), number, self.run, made
            )

        return Lane(
            f"egress {egress.id}",
            self.run,
            self.checkpoint,
            connect,
            waiting(patience, turn),
            is_late=turn.is_over,
            chunk_records=egress.chunk_records,
        )
