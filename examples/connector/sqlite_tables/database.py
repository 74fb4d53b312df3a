# SPDX-License-Identifier: Apache-2.0
"""The database that both kinds use."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import attrs

from statefun.components import ConnectorEgress, ConnectorIngress


@attrs.frozen
class Tables:
    """Tables of a database."""

    file: str
    names: tuple[str, ...]
    id_column: str = ""
    """The column whose value is the id, of tables that are read."""


def connected(file: str) -> sqlite3.Connection:
    """Open a database that exists; transactions begin when they are asked to.

    Threads may use the connection one after the other: a lane is closed by another thread than the
    one that writes.

    Raises:
        sqlite3.Error: if it cannot be opened.
    """
    uri = f"{Path(file).as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30)


def quoted(name: str) -> str:
    """Return the name of a table or column as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def check_tables(
    component: ConnectorIngress | ConnectorEgress, _patience: timedelta
) -> Iterator[str]:
    """Yield what keeps a component from running, for ``statefun validate --connect``."""
    tables: Tables = component.settings
    for name in tables.names:
        try:
            with closing(connected(tables.file)) as database:
                database.execute(f"SELECT * FROM {quoted(name)} LIMIT 0")  # noqa: S608 - the name is quoted
        except sqlite3.Error as error:
            yield f"{component.label}: table {name} of {tables.file}: {error}"
