# SPDX-License-Identifier: Apache-2.0
"""Appends rows to a table, exactly once: a transaction has the rows and the lane's progress."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from statefun.components.running import EgressRecord, Marker, UncertainError, Writing

from .database import Tables, connected, quoted

_PROGRESS = "CREATE TABLE IF NOT EXISTS statefun_progress (lane TEXT PRIMARY KEY, marker TEXT)"


def write_table(writing: Writing) -> TableCluster:
    """Return the connection of a lane."""
    return TableCluster(writing)


class TableCluster:
    """Writes the records of a lane.

    A transaction begins by a look at the lane's progress. If that is not what this connection has
    read or written last, another connection has taken the lane over, and this one writes nothing.

    A row that does not fit its table waits, as everything behind it does, until somebody has changed
    the table; the log has the reason.
    """

    def __init__(self, writing: Writing) -> None:
        tables: Tables = writing.egress.settings
        self._lane = f"{writing.query_id}/{writing.egress.id}/{writing.lane}"
        self._went_well = writing.went_well
        self._progress: str | None = None
        """As this connection has read or written it last."""
        try:
            self._database = connected(tables.file)
        except sqlite3.Error as error:
            raise UncertainError(str(error)) from None

    def open(self) -> Marker | None:
        """Return the lane's progress."""
        try:
            self._database.execute(_PROGRESS)
            self._progress = self._stored_progress()
        except sqlite3.Error as error:
            raise UncertainError(str(error)) from None
        return None if self._progress is None else Marker.of_json(json.loads(self._progress))

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write rows and the progress, both or neither."""
        progress = json.dumps(marker.to_json())
        try:
            with self._database as database:
                database.execute("BEGIN IMMEDIATE")
                if self._stored_progress() != self._progress:
                    raise UncertainError("another run writes to the table")
                for record in records:
                    self._insert(record.topic, json.loads(record.value or b"{}"))
                database.execute(
                    "INSERT OR REPLACE INTO statefun_progress VALUES (?, ?)", (self._lane, progress)
                )
        except sqlite3.Error as error:
            raise UncertainError(str(error)) from None
        self._progress = progress
        self._went_well()

    def close(self) -> None:
        """Close the connection; a transaction that is open has no effect."""
        self._database.close()

    def _stored_progress(self) -> str | None:
        cursor = self._database.execute(
            "SELECT marker FROM statefun_progress WHERE lane = ?", (self._lane,)
        )
        row = cursor.fetchone()
        return None if row is None else row[0]

    def _insert(self, table: str, row: dict[str, str | float | None]) -> None:
        columns = ", ".join(map(quoted, row))
        values = ", ".join("?" * len(row))
        self._database.execute(
            f"INSERT INTO {quoted(table)} ({columns}) VALUES ({values})",  # noqa: S608 - names are quoted
            tuple(row.values()),
        )
