# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from statefun.components.running import EgressRecord, Marker, UncertainError, Writing
from statefun.files.file_records import FOLDER, file_record
from statefun.files.file_writing import FileCluster, write_files
from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import TypedValue

TEXT = "kind: io.statefun.file.v1/egress\nspec: {id: a/b, folder: out, format: FORMAT}\n"


class CrashError(Exception):
    """The process has ended."""


def connect(folder: Path, format_: str = "json-lines", lane: int = 0) -> FileCluster:
    """Return a connection to the folder ``out``."""
    text = TEXT.replace("FORMAT", format_)
    [egress] = parse_module(text, str(folder / "m.yaml")).connector_egresses
    return write_files(
        Writing(egress, "query", lane, lambda _: False, lambda _: None, lambda: None)
    )


def marker(batch: int, records: int, owner: str = "run") -> Marker:
    """Return a marker."""
    return Marker(batch, records, b"\x01\x02", "run", owner)


def rows(*names: str, topic: str = FOLDER) -> list[EgressRecord]:
    """Return a record for each name."""
    values = (json.dumps({"name": name}).encode() for name in names)
    return [EgressRecord(topic, None, value, None) for value in values]


def written(folder: Path) -> list[str]:
    """Return the names in all files, in the order of the files, without what is not complete."""
    files = sorted((folder / "out").rglob("part-*"))
    lines = [
        line
        for file in files
        if "_statefun" not in file.parts
        for line in file.read_text().splitlines()
    ]
    return [json.loads(line)["name"] for line in lines]


def test_records_become_files(tmp_path: Path) -> None:
    """One for each topic and time of writing; a later connection finds the progress."""
    first = connect(tmp_path)
    assert first.open() is None
    first.write([], marker(-1, 0))
    first.write(rows("Ada", "Bob"), marker(3, 2))
    first.write([*rows("Eve"), *rows("Mal", topic="others")], marker(3, 4))
    first.close()

    assert connect(tmp_path).open() == marker(3, 4)
    assert connect(tmp_path, lane=1).open() is None
    assert written(tmp_path) == ["Mal", "Ada", "Bob", "Eve"]
    [file] = (tmp_path / "out" / "others").iterdir()
    assert re.fullmatch(r"part-000000003-000000004-[0-9a-f]{16}-0\.jsonl", file.name)


def test_parquet_has_columns(tmp_path: Path) -> None:
    """Of the fields of the records."""
    cluster = connect(tmp_path, "parquet")
    cluster.write(rows("Ada", "Bob"), marker(0, 2))

    [file] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file).to_pylist() == [{"name": "Ada"}, {"name": "Bob"}]


def steps(monkeypatch: pytest.MonkeyPatch, crash_at: int) -> Iterator[None]:
    """Let the process end at one of the steps that change the folder."""
    count = 0

    def counted(step: Callable[..., None]) -> Callable[..., None]:
        def call(self: Folder, *arguments: object) -> None:
            nonlocal count
            count += 1
            if count == crash_at:
                raise CrashError
            step(self, *arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("write", "move"):
            patch.setattr(Folder, name, counted(getattr(Folder, name)))
        yield


@pytest.mark.parametrize("crash_at", range(1, 12))
def test_a_crash_neither_loses_nor_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    """At any step; also if somebody takes files away as soon as they are there."""
    batches = {batch: rows(f"{batch}a", f"{batch}b") for batch in range(3)}
    taken: list[str] = []

    def take() -> None:
        for file in sorted((tmp_path / "out").glob("part-*")):
            taken.extend(json.loads(line)["name"] for line in file.read_text().splitlines())
            file.unlink()

    def publish() -> None:
        cluster = connect(tmp_path)
        found = cluster.open()
        done = -1 if found is None else found.batch
        take()
        for batch, records in batches.items():
            if batch > done:
                cluster.write(records, marker(batch, 2))
                take()

    crash = steps(monkeypatch, crash_at)
    next(crash)
    try:
        publish()
    except CrashError:
        next(crash, None)
    next(crash, None)
    take()
    publish()

    assert taken == ["0a", "0b", "1a", "1b", "2a", "2b"]


def test_another_run_keeps_an_earlier_one_from_writing(tmp_path: Path) -> None:
    """Once it has claimed the lane."""
    earlier, later = connect(tmp_path), connect(tmp_path)
    earlier.write(rows("Ada"), marker(0, 1, "earlier"))
    assert later.open() == marker(0, 1, "earlier")
    later.write([], marker(0, 1, "later"))

    with pytest.raises(UncertainError, match="another run has taken over"):
        earlier.write(rows("Bob"), marker(1, 1, "earlier"))
    assert written(tmp_path) == ["Ada"]


def test_a_disk_that_fails_is_tried_again(tmp_path: Path) -> None:
    """By the lane, with a new connection."""
    (tmp_path / "out").write_text("no folder")

    with pytest.raises(UncertainError):
        connect(tmp_path).write(rows("Ada"), marker(0, 1))


def test_values_are_json_objects() -> None:
    """Of any type that is written as one; line breaks are left out."""
    typed = EgressMessage("a/b", TypedValue("a/T", b'{\n  "name": "\xc3\x84da" }'))
    own = KafkaEgressMessage("a/b", topic="t", key="k", value='{"n":1}')

    assert file_record(typed).value == '{"name":"Äda"}'.encode()
    assert (file_record(own).topic, file_record(own).value) == ("t", b'{"n":1}')
    for value, reason in (
        (b"[1]", "it is a list"),
        (b"\x08\x01", "JSONDecodeError"),
        (b"", "Expecting"),
    ):
        with pytest.raises(DefinitionError, match=f"a/b is a JSON object, which .* {reason}"):
            file_record(EgressMessage("a/b", TypedValue("a/T", value)))
