# SPDX-License-Identifier: Apache-2.0
"""Wraps the connections of connectors: checks their methods' results, and stores the progress of lanes.

If a connector stores markers itself, its connections are wrapped only in :class:`CheckedCluster`.
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
from statefun.runtime.egress.lane import Cluster, GatheringCluster, UncertainError, UndeliveredError
from statefun.runtime.egress.marker import Marker
from statefun.sdk.errors import ConnectorError

_METHODS = ("open", "write", "close")
_SIGNALS = (UncertainError, UndeliveredError)
"""Exceptions with which a connection makes its lane retry (UncertainError) or stop (UndeliveredError)."""


class CheckedCluster:
    """Wraps a connection that a connector has made, and checks its methods' results; errors name the egress.

    Args:
        owner: the egress and its writer, for error texts.
        connect: calls the connector's writer. Its argument is a function that the connection calls
            during ``write`` with the number of records that are stored safely so far.
        on_written: called with each such number that is valid and larger than the one before.

    Raises:
        ConnectorError: if the writer does not return a connection.
    """

    def __init__(
        self,
        owner: str,
        connect: Callable[[Callable[[int], None]], Any],
        on_written: Callable[[int], None],
    ) -> None:
        self._on_written = on_written
        self._record_count: int | None = None
        """The number of records in the current call of ``write``; None if ``write`` is not being called."""
        self._safe_count = 0
        """The number of records of the current call that are stored safely."""
        with named_failures(owner, *_SIGNALS):
            cluster = connect(self._has_written)
        for name in _METHODS:
            if not callable(getattr(cluster, name, None)):
                raise ConnectorError(
                    f"{owner} must return a connection with a method {name}, but has returned {cluster!r}"
                )
        self._owner = owner
        self._cluster = cluster

    def open(self) -> Marker | None:
        """Open the connection; return the lane's marker, or None if the connector stores no markers."""
        with named_failures(self._owner, *_SIGNALS):
            marker = self._cluster.open()
        if marker is not None and not isinstance(marker, Marker):
            raise ConnectorError(
                f"{self._owner}: the method open must return None, or a Marker that was passed to `write`, "
                f"but has returned {marker!r}"
            )
        return marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records and the lane's marker through the connection."""
        self._record_count, self._safe_count = len(records), 0
        try:
            with named_failures(self._owner, *_SIGNALS):
                answer = self._cluster.write(records, marker)
        finally:
            self._record_count = None
        if answer is not None:
            raise ConnectorError(
                f"{self._owner}: the method write has returned {answer!r}; it must return None when all "
                "records are stored safely, and raise an error otherwise"
            )

    def tend(self, *, is_last: bool) -> timedelta | None:
        """If the connection gathers records, show readers the records that it gathered long enough ago.

        A connection that gathers records stores them safely at once, and shows them to readers later.

        Args:
            is_last: whether no batch follows; then readers see all records.

        Returns:
            The time after which to call this again; None if the connection has gathered no records.
        """
        tend = getattr(self._cluster, "tend", None)
        with named_failures(self._owner, *_SIGNALS):
            wait = None if tend is None else tend(is_last=is_last)
        if not isinstance(wait, timedelta | None):
            raise ConnectorError(
                f"{self._owner}: the method tend must return a timedelta, or None if no record is gathered, and "
                f"has returned {wait!r}"
            )
        return wait

    def close(self) -> None:
        """Close the connection; an exception of the connector becomes an error that names the egress."""
        with named_failures(self._owner):
            self._cluster.close()

    def _has_written(self, count: int) -> None:
        """Check the number of safely stored records; call ``on_written`` with the number if it has grown."""
        record_count = self._record_count
        if record_count is None:
            raise ConnectorError(
                f"{self._owner}: has_written must be called only by the method write"
            )
        if type(count) is not int or not 0 <= count <= record_count:  # which a flag is not
            raise ConnectorError(
                f"{self._owner}: has_written must be called with the number of records of this call of write "
                f"that are stored safely, at most {record_count}, but was called with {count!r}"
            )
        if count > self._safe_count:
            self._on_written(count)
            self._safe_count = count


class KeptProgress:
    """A connection to a system that stores no markers; a file of the checkpoint stores the lane's progress.

    After a crash, records that were written since the file was last updated are written again.

    Args:
        folder: the folder of the file.
        lane: the number of the lane.
        run: the id of the application's run.
        connect: makes the connection. Its argument is the function that the connection calls during
            ``write`` with the number of records that are stored safely so far.
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
        """The lane's marker with all records of the current call of ``write``."""
        self._first_number = 0
        """The number of records that the lane has written in the batch before the current call of ``write``."""
        self._cluster = connect(self._has_written)

    def open(self) -> Marker | None:
        """Open the connection; return the lane's marker from the file, which an earlier run may have written."""
        self._cluster.open()
        if self._folder.has(self._file):
            stored = Marker.of_json(json.loads(read_framed(self._folder, self._file)))
            # Runs of one checkpoint exclude each other, so that no earlier run has to be fenced.
            self._marker = stored._replace(publisher=self._run, owner=self._run)
        return self._marker

    @property
    def noted_marker(self) -> Marker | None:
        """The lane's marker as the file has it; None if nothing was written."""
        return self._marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records through the connection, then store the lane's marker in the file."""
        last = self._marker
        goes_on = last is not None and (last.batch, last.digest) == (marker.batch, marker.digest)
        self._first_number = last.records if last is not None and goes_on else 0
        self._next_marker = marker
        self._cluster.write(records, marker)
        self._store(marker)

    def tend(self, *, is_last: bool) -> timedelta | None:
        """If the connection gathers records, show readers the records that it gathered long enough ago.

        A connection that gathers records stores them safely at once, and shows them to readers later.

        Args:
            is_last: whether no batch follows; then readers see all records.

        Returns:
            The time after which to call this again; None if the connection has gathered no records.
        """
        cluster = self._cluster
        return cluster.tend(is_last=is_last) if isinstance(cluster, GatheringCluster) else None

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()

    def _has_written(self, count: int) -> None:
        """Store the lane's progress during a call of ``write``; ``count`` records of the call are stored safely.

        ``count`` does not include skipped records, so the stored progress may be too low: after a crash, some
        records are then written again.
        """
        next_marker = self._next_marker
        if next_marker is not None:
            self._store(next_marker._replace(records=self._first_number + count))

    def _store(self, marker: Marker) -> None:
        write_framed(self._folder, self._file, json.dumps(marker.to_json()).encode())
        self._marker = marker
