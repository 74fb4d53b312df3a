# SPDX-License-Identifier: Apache-2.0
"""Connections that a connector makes: their answers are checked, and their progress is kept.

A connector that stores markers itself needs :class:`CheckedCluster` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from statefun.engine.sinks import EgressRecord
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.connector_failures import named_failures
from statefun.runtime.egress.lane import (
    Cluster,
    GatheringCluster,
    Marker,
    UncertainError,
    UndeliveredError,
)
from statefun.sdk.errors import ConnectorError

_METHODS = ("open", "write", "close")
_SIGNALS = (UncertainError, UndeliveredError)
"""Exceptions by which a connection makes its lane try again, or stop."""


class CheckedCluster:
    """A connection of a connector; a wrong answer is an error that names the egress.

    Args:
        owner: the egress and its writer, for messages.
        connect: calls the writer. Its argument is a function that the connection calls during
            ``write`` with the number of records that are safe.
        on_written: called with each such number that is valid and larger than the one before.

    Raises:
        ConnectorError: if the writer returns no connection.
    """

    def __init__(
        self,
        owner: str,
        connect: Callable[[Callable[[int], None]], Any],
        on_written: Callable[[int], None],
    ) -> None:
        self._on_written = on_written
        self._record_count: int | None = None
        """The number of records in the present call of ``write``; None between calls."""
        self._safe_count = 0
        """The number of them that are safe."""
        with named_failures(owner, *_SIGNALS):
            cluster = connect(self._has_written)
        for name in _METHODS:
            if not callable(getattr(cluster, name, None)):
                raise ConnectorError(f"{owner} returns {cluster!r}, which has no method {name}")
        self._owner = owner
        self._cluster = cluster

    def open(self) -> Marker | None:
        """Open the connection; return the lane's progress, if it is known."""
        with named_failures(self._owner, *_SIGNALS):
            marker = self._cluster.open()
        if marker is not None and not isinstance(marker, Marker):
            raise ConnectorError(
                f"{self._owner}: open returns {marker!r}; it returns a Marker that `write` has "
                "got, or "
                "None"
            )
        return marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records and the marker."""
        self._record_count, self._safe_count = len(records), 0
        try:
            answer = self._cluster.write(records, marker)
        finally:
            self._record_count = None
        if answer is not None:
            raise ConnectorError(
                f"{self._owner}: write returns {answer!r}; it returns None when all records are "
                "safe, and raises an error otherwise"
            )

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Let the connection show readers the records that it keeps, if it keeps any."""
        tend = getattr(self._cluster, "tend", None)
        wait = None if tend is None else tend(is_last=is_last)
        if not isinstance(wait, timedelta | None):
            raise ConnectorError(
                f"{self._owner}: tend returns {wait!r}; it returns a timedelta, or None if nothing "
                "is kept"
            )
        return wait

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()

    def _has_written(self, count: int) -> None:
        """Check how many records are safe, and report the number if it is larger than the last one."""
        record_count = self._record_count
        if record_count is None:
            raise ConnectorError(
                f"{self._owner}: has_written is called while no call of write is under way"
            )
        if type(count) is not int or not 0 <= count <= record_count:  # which a flag is not
            raise ConnectorError(
                f"{self._owner}: has_written is called with {count!r}; it takes how many of the "
                f"{record_count} records of the present call of write are safe, from the first one on"
            )
        if count > self._safe_count:
            self._safe_count = count
            self._on_written(count)


class KeptProgress:
    """A connection without markers, and a file of the checkpoint that has the lane's progress.

    After a crash, the records that were written later than the file are written once more.

    Args:
        folder: the folder of the file.
        lane: the number of the lane.
        run: the id of the application's run.
        connect: makes the connection. Its argument is the function to call during ``write`` with
            the number of its first records that are safe.
    """

    def __init__(
        self,
        folder: Folder,
        lane: int,
        run: str,
        connect: Callable[[Callable[[int], None]], Cluster],
    ) -> None:
        self._folder = folder
        self._file = f"lane.{lane}"
        self._run = run
        self._marker: Marker | None = None
        self._next_marker: Marker | None = None
        """The progress after the present call of ``write``."""
        self._first_number = 0
        """The number of the first record of that call, among the lane's records of the batch."""
        self._cluster = connect(self._has_written)

    def open(self) -> Marker | None:
        """Open the connection; return the lane's progress, also that of an earlier run."""
        self._cluster.open()
        if self._folder.has(self._file):
            stored = Marker.of_json(json.loads(read_framed(self._folder, self._file)))
            # Runs of one checkpoint exclude each other, so that no earlier run has to be fenced.
            self._marker = stored._replace(publisher=self._run, owner=self._run)
        return self._marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records, and store the marker in the file."""
        last = self._marker
        goes_on = last is not None and (last.batch, last.digest) == (marker.batch, marker.digest)
        self._first_number = last.records if last is not None and goes_on else 0
        self._next_marker = marker
        self._cluster.write(records, marker)
        self._store(marker)

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Let the connection show readers the records that it keeps, if it keeps any."""
        cluster = self._cluster
        return cluster.tend(is_last=is_last) if isinstance(cluster, GatheringCluster) else None

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()

    def _has_written(self, count: int) -> None:
        """Store the progress within a call of ``write``.

        ``count`` lacks the records that are left out, so the lane may be further than the file says.
        """
        next_marker = self._next_marker
        if next_marker is not None:
            self._store(next_marker._replace(records=self._first_number + count))

    def _store(self, marker: Marker) -> None:
        write_framed(self._folder, self._file, json.dumps(marker.to_json()).encode())
        self._marker = marker
