# SPDX-License-Identifier: Apache-2.0
"""Writes records to the playground exactly once: in one transaction with the marker of the lane."""

from __future__ import annotations

import json
from collections.abc import Sequence

from statefun.engine.sinks import EgressRecord
from statefun.module.model import PlaygroundDoor
from statefun.runtime.checkpoint.playground_store import OPEN
from statefun.runtime.egress.connector_lanes import Writing
from statefun.runtime.egress.lane import UncertainError
from statefun.runtime.egress.marker import Marker


def playground_connection(writing: Writing) -> PlaygroundCluster:
    """Return the connection through which a lane of a playground egress writes records."""
    return PlaygroundCluster(writing)


class PlaygroundCluster:
    """A lane's connection to the playground's database."""

    def __init__(self, writing: Writing) -> None:
        door: PlaygroundDoor = writing.egress.settings
        self._store = OPEN[door.host, door.port]
        self._lane = f"{writing.egress.id}/{writing.lane}"
        self._went_well = writing.went_well
        self._progress: str | None = None
        """The lane's marker, as JSON, that this connection has read or written last."""

    def open(self) -> Marker | None:
        """Return the lane's marker from the database; None if the lane has none."""
        self._progress = self._store.marker(self._lane)
        if self._progress is None:
            return None
        return Marker.of_json(json.loads(self._progress))

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Add records and the lane's marker to the database, in one transaction."""
        content = json.dumps(marker.to_json())
        values = [(record.topic, record.value or b"") for record in records]
        if not self._store.publish(self._lane, self._progress, content, values):
            raise UncertainError("another run has written to the lane")
        self._progress = content
        self._went_well()

    def close(self) -> None:
        """Do nothing: the database belongs to the playground, which closes it."""
