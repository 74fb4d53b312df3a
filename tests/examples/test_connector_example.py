# SPDX-License-Identifier: Apache-2.0
"""The example that adds tables of SQLite as a kind of ingress and egress."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from connector.sqlite_tables.database import Tables
from connector.sqlite_tables.kinds import row_record
from connector.sqlite_tables.reading import TableSource, read_task
from connector.sqlite_tables.writing import TableCluster
from submitting import EXAMPLES

from statefun import (
    DefinitionError,
    KafkaEgressMessage,
    StringType,
    TypeName,
    egress_message_builder,
)
from statefun.components import ConnectorEgress
from statefun.components.running import EgressRecord, Marker, UncertainError, Writing
from statefun.module.location import Location

EXAMPLE = EXAMPLES / "connector"
TOTALS = "SELECT customer, cents FROM totals ORDER BY id"
ENTRY_POINTS = re.compile(r'\[project\.entry-points\."(.*)"\]\n(\S+) = "(.*)"')


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a database with three orders."""
    file = tmp_path / "shop.sqlite"
    change(file, (EXAMPLE / "shop.sql").read_text())
    return file


def change(file: Path, statements: str) -> None:
    """Execute SQL."""
    with closing(sqlite3.connect(file)) as database:
        database.executescript(statements)


def rows(file: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def read(tasks: Iterable[bytes]) -> list[tuple[bytes | None, bytes]]:
    """Return keys and values of the records of tasks."""
    records = [
        record for task in tasks for batch in read_task(task) for record in batch.to_pylist()
    ]
    return [(record["key"], record["value"]) for record in records]


def cluster(file: Path, query_id: str = "q") -> TableCluster:
    """Return a connection of a lane."""
    egress = ConnectorEgress(
        id=TypeName("com.example.shop", "totals"),
        kind="com.example.sqlite.v1/egress",
        location=Location("module.yaml", 1, 1),
        writer="sqlite_tables.writing:write_table",
        address=str(file),
        convert=lambda _: None,
        settings=Tables(str(file), ("totals",)),
    )
    return TableCluster(Writing(egress, query_id, 0, _goes_on, print, lambda: None))


def _goes_on(_: timedelta) -> bool:
    return False


def record(value: str) -> EgressRecord:
    """Return a record for the table."""
    return EgressRecord("totals", None, value.encode(), [])


def marker(batch: int) -> Marker:
    """Return the progress after a micro-batch."""
    return Marker(batch, 1, b"digest", "run", "run")


def test_rows_between_two_offsets_are_the_same_each_time(shop: Path) -> None:
    """Also when rows have come since; a micro-batch has no more of them than it may have."""
    source = TableSource(Tables(str(shop), ("orders",), "customer"), 2)
    start = source.initial_offset()
    end = source.latest_offset(start)
    first = read(source.tasks(start, end))
    change(shop, "INSERT INTO orders (customer, cents) VALUES (NULL, 5)")

    assert first == [
        (b"ada", b'{"id": 1, "customer": "ada", "cents": 250}'),
        (b"bob", b'{"id": 2, "customer": "bob", "cents": 100}'),
    ]
    assert read(source.tasks(start, end)) == first
    rest = source.latest_offset(end)
    assert [key for key, _ in read(source.tasks(end, rest))] == [b"ada", None]
    assert source.latest_offset(rest) == rest
    assert source.tasks(rest, rest) == []


def test_a_run_that_ends_reads_what_is_there(shop: Path) -> None:
    """Rows that come later are left to the next run."""
    source = TableSource(Tables(str(shop), ("orders",), "customer"), 100)
    source.bound()
    change(shop, "INSERT INTO orders (customer, cents) VALUES ('eve', 5)")

    assert source.latest_offset(source.initial_offset()) == {"orders": 3}


def test_rows_and_progress_are_written_together(shop: Path) -> None:
    """A row that does not fit leaves nothing behind, and what is written is known afterwards."""
    lane = cluster(shop)
    assert lane.open() is None
    lane.write([record('{"customer": "ada", "cents": 1}')], marker(0))
    with pytest.raises(UncertainError, match="no column named color"):
        lane.write([record('{"cents": 2}'), record('{"color": "red"}')], marker(1))
    lane.close()
    again, other = cluster(shop), cluster(shop, "another application")

    assert rows(shop, TOTALS) == [("ada", 1)]
    assert again.open() == marker(0)
    assert other.open() is None
    again.close()
    other.close()


def test_a_connection_that_was_replaced_writes_nothing(shop: Path) -> None:
    """The later connection owns the lane."""
    former, present = cluster(shop), cluster(shop)
    former.open()
    present.open()
    present.write([], marker(0))

    with pytest.raises(UncertainError, match="another run"):
        former.write([record('{"customer": "ada", "cents": 1}')], marker(0))

    assert rows(shop, TOTALS) == []
    former.close()
    present.close()


def test_what_is_no_row_is_refused_where_it_is_sent() -> None:
    """By the conversion, which runs with the function."""
    row = egress_message_builder("a/b", '{"customer": "ada"}', StringType)

    with pytest.raises(DefinitionError, match="a row for egress a/b is a JSON object"):
        row_record("totals", KafkaEgressMessage("a/b", topic="t", value="[1]"))
    with pytest.raises(DefinitionError, match="a row for egress a/b is a JSON object"):
        row_record("totals", row)


@pytest.fixture
def environment(shop: Path, tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the package is installed."""
    entry = ENTRY_POINTS.search((EXAMPLE / "pyproject.toml").read_text())
    assert entry is not None
    group, name, value = entry.groups()
    metadata = tmp_path / "site" / "sqlite_tables-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sqlite-tables\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(EXAMPLE), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "SHOP": str(shop)}


@pytest.mark.spark
@pytest.mark.takes(minutes=0.5)
def test_orders_become_totals(shop: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Of the table's rows; one without a customer is left out."""
    change(shop, "INSERT INTO orders (customer, cents) VALUES (NULL, 5)")
    program = (
        "import app; from statefun import run; "
        f"run(checkpoint={str(tmp_path / 'checkpoint')!r}, available_now=True, quiet=True)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=EXAMPLE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    totals = rows(shop, TOTALS)
    assert [row for row in totals if row[0] == "ada"] == [("ada", 250), ("ada", 400)]
    assert [row for row in totals if row[0] != "ada"] == [("bob", 100)]
