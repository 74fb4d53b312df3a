# SPDX-License-Identifier: Apache-2.0
"""Publishes records to the playground: each batch in one transaction, with the batch's number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta

from statefun.module.model import PlaygroundEgress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, Staged
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.egress.lane import LaneBatch
from statefun.runtime.egress.lane_set import Published


class PlaygroundLanes:
    """The only lane of an egress of the playground; it has nothing to connect to."""

    needs_progress = False
    has_tasks = False

    def __init__(
        self, egress: PlaygroundEgress, store: PlaygroundStore, checkpoint: Folder
    ) -> None:
        self.id = str(egress.id)
        self.place = f"{egress.id} playground"
        self._store = store
        self._outbox = Outbox(checkpoint)

    def driver_lanes(
        self, should_stop: Callable[[], bool], pause: Callable[[timedelta], bool]
    ) -> PlaygroundLanes:
        """Return itself: writing to a disk needs no patience."""
        del should_stop, pause
        return self

    def connect(self) -> None:
        """Need no connection."""

    def open(self, query_id: str, lanes: int, known_runs: Collection[str]) -> None:
        """Need no markers elsewhere: the checkpoint holds the records."""

    def claim(self) -> set[str]:
        """Share the lock of the checkpoint."""
        return set()

    def publish(self, batches: Sequence[Staged]) -> Iterator[Published]:
        """Publish ``batches``; report each one."""
        for staged in batches:
            lanes = [LaneBatch.of(staged, self.id, lane) for lane in range(staged.lanes)]
            records = (
                (record.topic, record.value or b"")
                for lane in lanes
                for position, record in enumerate(lane.records(self._outbox))
                if position not in lane.left_out
            )
            self._store.publish(self.id, staged.manifest.batch, records)
            yield Published(staged, 0)

    def cancel(self) -> None:
        """Need not: publishing takes no time."""

    def close(self) -> None:
        """Leave the database to the others."""
