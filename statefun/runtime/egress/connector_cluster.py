# SPDX-License-Identifier: Apache-2.0
"""A connection of a connector's: what it returns is checked, and its progress kept if need be."""

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
"""Exceptions by which a connection tells its lane to try again, or to stop."""


class CheckedCluster:
    """A connection whose methods return what the page on connectors says, or fail.

    Args:
        owner: whose it is, for messages: an egress and its writer.
        connect: calls the writer, given what takes note of how many records of the present call of
            ``write`` are safe.
        note: takes note of that, if it may be so.

    Raises:
        ConnectorError: if the writer returns no connection.
    """

    def __init__(
        self,
        owner: str,
        connect: Callable[[Callable[[int], None]], Any],
        note: Callable[[int], None],
    ) -> None:
        self._note = note
        self._given: int | None = None
        """How many records the present call of ``write`` was given."""
        self._noted = 0
        """How many of them are safe."""
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
                f"{self._owner}: open returns {marker!r}; it returns a Marker that it was given, or "
                "None"
            )
        return marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records and the marker."""
        self._given, self._noted = len(records), 0
        try:
            answer = self._cluster.write(records, marker)
        finally:
            self._given = None
        if answer is not None:
            raise ConnectorError(
                f"{self._owner}: write returns {answer!r}; it returns None when all records are "
                "safe, and raises an error otherwise"
            )

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Let the connection show what it keeps, if it keeps records."""
        tend = getattr(self._cluster, "tend", None)
        later = None if tend is None else tend(is_last=is_last)
        if not isinstance(later, timedelta | None):
            raise ConnectorError(
                f"{self._owner}: tend returns {later!r}; it returns a timedelta, or None if nothing "
                "is kept"
            )
        return later

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()

    def _has_written(self, count: int) -> None:
        """Take note of a part of the progress: what is noted is never written again."""
        given = self._given
        if given is None:
            raise ConnectorError(
                f"{self._owner}: has_written is called while no call of write is under way"
            )
        if type(count) is not int or not 0 <= count <= given:  # which a flag is not
            raise ConnectorError(
                f"{self._owner}: has_written is called with {count!r}; it takes how many of the "
                f"{given} records of the present call of write are safe, from the first one on"
            )
        if count > self._noted:
            self._noted = count
            self._note(count)


class KeptProgress:
    """A connection that keeps no markers itself: a file of the checkpoint has the lane's progress.

    What is written after the file is written once more after a crash.

    Args:
        folder: where the file is.
        lane: the number of the lane.
        run: the run that writes.
        connect: makes the connection, given a function that takes note of how many records of the
            present call of ``write`` are safe, from its first one on.
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
        self._kept: Marker | None = None
        self._next: Marker | None = None
        """The progress when the present call of ``write`` is over."""
        self._first = 0
        """The number of the lane's first record in it."""
        self._cluster = connect(self._has_written)

    def open(self) -> Marker | None:
        """Open the connection; return the lane's progress, also that of an earlier run."""
        self._cluster.open()
        if self._folder.has(self._file):
            kept = Marker.of_json(json.loads(read_framed(self._folder, self._file)))
            # Runs of one checkpoint exclude each other, so that there is nobody to be fenced.
            self._kept = kept._replace(publisher=self._run, owner=self._run)
        return self._kept

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records, and keep the marker."""
        kept = self._kept
        goes_on = kept is not None and (kept.batch, kept.digest) == (marker.batch, marker.digest)
        self._first = kept.records if kept is not None and goes_on else 0
        self._next = marker
        self._cluster.write(records, marker)
        self._keep(marker)

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Let the connection show what it keeps, if it keeps records."""
        cluster = self._cluster
        return cluster.tend(is_last=is_last) if isinstance(cluster, GatheringCluster) else None

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()

    def _has_written(self, count: int) -> None:
        """Keep a part of the progress; records that are left out are not counted, so it may be more."""
        following = self._next
        if following is not None:
            self._keep(following._replace(records=self._first + count))

    def _keep(self, marker: Marker) -> None:
        write_framed(self._folder, self._file, json.dumps(marker.to_json()).encode())
        self._kept = marker
