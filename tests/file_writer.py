# SPDX-License-Identifier: Apache-2.0
"""A file egress as tests drive it, without Spark."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from statefun.components import ConnectorEgress
from statefun.components.running import EgressRecord, Folder, Marker, Writing
from statefun.files.file_records import OWN_FOLDER
from statefun.files.file_writing import FileCluster, write_files
from statefun.module.loader import parse_module

TEXT = "kind: io.statefun.file.v1/egress\nspec: {id: a/b, folder: out, MORE}\n"
AT_ONCE, LATER = "rollEvery: 0s", "rollEvery: 1h"


@cache
def egress_of(folder: Path, more: str) -> ConnectorEgress:
    """Return the egress that writes into the folder ``out``."""
    [egress] = parse_module(TEXT.replace("MORE", more), str(folder / "m.yaml")).connector_egresses
    return egress


def connect(folder: Path, more: str = AT_ONCE, lane: int = 0) -> FileCluster:
    """Return a connection to the folder ``out``."""
    egress = egress_of(folder, more)
    return write_files(
        Writing(
            egress,
            "query",
            lane,
            lambda _: False,
            lambda _: None,
            lambda: None,
            folder=Folder.at(folder / "checkpoint"),
        )
    )


def claimed(folder: Path, more: str = AT_ONCE, owner: str = "run") -> FileCluster:
    """Return a connection that a run has claimed."""
    cluster = connect(folder, more)
    found = cluster.open() or marker(-1, 0)
    cluster.write([], found._replace(owner=owner))
    return cluster


def marker(batch: int, records: int, owner: str = "run") -> Marker:
    """Return a marker."""
    return Marker(batch, records, b"\x01\x02", "run", owner)


def rows(*names: str, topic: str = OWN_FOLDER) -> list[EgressRecord]:
    """Return a record for each name."""
    values = (json.dumps({"name": name}).encode() for name in names)
    return [EgressRecord(topic, None, value, None) for value in values]


def files(folder: Path) -> list[Path]:
    """Return the files that readers see, in order."""
    found = sorted((folder / "out").rglob("part-*"))
    return [file for file in found if "_statefun" not in file.parts]


def names(file: Path) -> list[str]:
    """Return the names in a file."""
    return [json.loads(line)["name"] for line in file.read_text().splitlines()]


def hidden(folder: Path) -> list[str]:
    """Return the names of what is not complete."""
    return sorted(each.name for each in (folder / "out" / "_statefun").rglob("*") if each.is_file())
