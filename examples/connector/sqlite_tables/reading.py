# SPDX-License-Identifier: Apache-2.0
"""Reads the rows that are appended to tables, each once.

A table's rows are never changed or deleted, and a new one has the largest id: declare it with
``id INTEGER PRIMARY KEY AUTOINCREMENT``. Then the rows between two ids are always the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from statefun.components.running import RECORDS_ARROW, Offset, Reading

from .database import Tables, connected, quoted

_ROWS_AT_ONCE = 1000
_ALL = -1
"""The limit of a query that returns all rows."""


def read_tables(reading: Reading) -> DataFrame:
    """Return the rows of an ingress's tables."""
    source = TableSource(reading.ingress.settings, reading.records_per_batch)
    return reading.planned(source, read_task)


class TableSource:
    """Plans what each micro-batch reads; an offset has the last row id of each table."""

    def __init__(self, tables: Tables, limit: int) -> None:
        self._tables = tables
        self._limit = limit
        self._end: Offset | None = None
        """How far a run reads that ends by itself (available-now)."""

    def initial_offset(self) -> Offset:
        """Return the position before all rows."""
        return dict.fromkeys(self._tables.names, 0)

    def latest_offset(self, start: Offset) -> Offset:
        """Return how far a micro-batch reads."""
        ends = self._newest(start, self._limit)
        if self._end is None:
            return ends
        return {name: min(end, self._end[name]) for name, end in ends.items()}

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Return a task for each table with new rows."""
        tables = self._tables
        tasks = [
            {"name": name, "after": start.get(name, 0), "end": end.get(name, 0)}
            for name in tables.names
        ]
        common = {"file": tables.file, "id_column": tables.id_column}
        return [json.dumps(common | task).encode() for task in tasks if task["after"] < task["end"]]

    def bound(self) -> None:
        """Read no further than what is there now."""
        self._end = self._newest(self.initial_offset(), _ALL)

    def stop(self) -> None:
        """Do nothing: no connection stays open."""

    def _newest(self, start: Offset, limit: int) -> Offset:
        """Return the id of the last of the next rows of each table, up to so many."""
        newest = {}
        with closing(connected(self._tables.file)) as database:
            for name in self._tables.names:
                after = start.get(name, 0)
                query = (
                    "SELECT max(rowid) FROM (SELECT rowid FROM "  # noqa: S608 - the name is quoted
                    f"{quoted(name)} WHERE rowid > ? ORDER BY rowid LIMIT ?)"
                )
                [last] = database.execute(query, (after, limit)).fetchone()
                newest[name] = after if last is None else last
        return newest


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task, in a worker."""
    part = json.loads(task)
    name, id_column = part["name"], part["id_column"]
    now = datetime.now(timezone.utc)

    def record(rowid: int, row: dict[str, Any]) -> dict[str, Any]:
        id_ = row.get(id_column)
        return {
            "key": None if id_ is None else str(id_).encode(),
            "value": json.dumps(row, default=bytes.hex).encode(),
            "topic": name,
            "partition": 0,
            "offset": rowid,
            "timestamp": now,
            "headers": [],
        }

    with closing(connected(part["file"])) as database:
        cursor = database.execute(
            f"SELECT rowid, * FROM {quoted(name)} WHERE rowid > ? AND rowid <= ? ORDER BY rowid",  # noqa: S608 - the name is quoted
            (part["after"], part["end"]),
        )
        columns = [column for column, *_ in cursor.description][1:]
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            records = [record(rowid, dict(zip(columns, row, strict=True))) for rowid, *row in rows]
            yield pa.RecordBatch.from_pylist(records, RECORDS_ARROW)
