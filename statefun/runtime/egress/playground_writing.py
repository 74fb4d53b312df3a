# SPDX-License-Identifier: Apache-2.0
"""Writes records to the playground, exactly once: in one transaction with the lane's progress."""

from __future__ import annotations

import json
from collections.abc import Sequence

from statefun.module.model import PlaygroundDoor
from statefun.module.sinks import EgressRecord
from statefun.runtime.checkpoint.playground_store import OPEN
from statefun.runtime.egress.connector_lanes import Writing
from statefun.runtime.egress.lane import Marker, UncertainError


def write_playground(writing: Writing) -> PlaygroundCluster:
    """Return the connection of a lane."""
    return PlaygroundCluster(writing)


class PlaygroundCluster:
    """The store of a playground; see :class:`~statefun.components.running.Cluster`."""

    def __init__(self, writing: Writing) -> None:
        door: PlaygroundDoor = writing.egress.settings
        self._store = OPEN[door.host, door.port]
        self._lane = f"{writing.egress.id}/{writing.lane}"
        self._went_well = writing.went_well
        self._owner: str | None = None

    def open(self) -> Marker | None:
        """Return the lane's progress."""
        found = self._read()
        self._owner = None if found is None else found.owner
        return found

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Add records, and the progress."""
        found = self._read()
        if found is not None and found.owner not in {self._owner, marker.owner}:
            raise UncertainError("another run has taken over")
        content = json.dumps({**marker._asdict(), "digest": marker.digest.hex()})
        values = [(record.topic, record.value or b"") for record in records]
        self._store.publish(self._lane, content, values)
        self._owner = marker.owner
        self._went_well()

    def close(self) -> None:
        """Leave the database to the others."""

    def _read(self) -> Marker | None:
        content = self._store.marker(self._lane)
        if content is None:
            return None
        found = json.loads(content)
        return Marker(**{**found, "digest": bytes.fromhex(found["digest"])})
