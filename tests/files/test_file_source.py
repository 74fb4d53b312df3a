# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statefun.components.running import Folder, Offset
from statefun.files.file_settings import IngressFiles
from statefun.files.file_source import FileSource
from statefun.files.parsing import read_task
from statefun.module.loader import parse_module
from statefun.sdk.errors import ConnectorError

MODULE = """
kind: io.statefun.file.v1/ingress
spec:
  id: test/in
  onChange: CHANGE
  files: [{path: PATH, format: FORMAT, valueType: test/T, targets: [test.fns/f]}]
"""


class Reader:
    """An ingress over one checkpoint, as one start of an application after the other has it."""

    def __init__(self, folder: Path, format_: str, path: str = "in", change: str = "fail") -> None:
        self.folder = folder / "in"
        self.folder.mkdir(exist_ok=True)
        self._log = Folder.at(folder / "log")
        text = MODULE.replace("PATH", path).replace("FORMAT", format_).replace("CHANGE", change)
        [ingress] = parse_module(text, str(folder / "module.yaml")).connector_ingresses
        self._settings: IngressFiles = ingress.settings
        self.offset: Offset = {"log": 0, "records": 0}
        self.start()

    def start(self, most: int = 1000) -> None:
        """Begin anew where the last micro-batch has ended."""
        self.source = FileSource(self._settings, self._log, most)

    def write(self, name: str, text: str | bytes, age: float = 0) -> Path:
        """Write a file, of so many seconds ago."""
        file = self.folder / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        if age:
            time = file.stat().st_mtime - age
            os.utime(file, (time, time))
        return file

    def append(self, name: str, text: str) -> None:
        """Let a file grow."""
        with (self.folder / name).open("a") as file:
            file.write(text)

    def read(self) -> list[dict[str, Any]]:
        """Read the next micro-batch; nothing if there is none."""
        self.source._next_look = 0  # noqa: SLF001 - time has passed
        end = self.source.latest_offset(self.offset)
        rows = [
            row
            for task in self.source.tasks(self.offset, end)
            for batch in read_task(task)
            for row in batch.to_pylist()
        ]
        self.offset = end
        return rows

    def values(self) -> list[str]:
        """Return the values of the next micro-batch."""
        return [row["value"].decode() for row in self.read()]


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Return the names of files, the numbers of lines, and the offsets."""
    found = []
    for row in rows:
        headers = {header["key"]: header["value"] for header in row["headers"]}
        name = Path(headers["file.path"].decode()).name
        found.append((name, int(headers["file.line"]), row["offset"]))
    return found


def test_files_grow_and_come(tmp_path: Path) -> None:
    """Whole lines are read, in the order of the files' age; blank ones are left out."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("b", "one\n\ntwo\r\nthr", age=5)
    reader.write("a", "four\n")
    first = reader.read()
    reader.append("b", "ee\nfive")
    reader.write("c", "six\n")
    reader.write("_hidden", "no\n")
    reader.write(".hidden", "no\n")
    second = reader.read()

    assert [(row["key"], row["value"]) for row in first] == [
        *((b"one", b"one"), (b"two", b"two"), (b"four", b"four"))
    ]
    assert places(first) == [("b", 1, 0), ("b", 3, 2), ("a", 1, 3)]
    assert sorted(row["value"].decode() for row in second) == ["six", "three"]
    assert ("b", 4) in [place[:2] for place in places(second)]
    assert (reader.offset["records"], reader.read()) == (6, [])


def test_a_last_line_without_its_end_is_read_when_the_file_is_quiet(tmp_path: Path) -> None:
    """Or when the run is to read what is there."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("quiet", "one\ntwo", age=60)
    reader.write("new", "three\nfour", age=3)

    assert reader.values() == ["one", "two", "three"]
    assert reader.values() == []
    reader.source.bound()
    assert reader.values() == ["four"]


def test_json_lines_have_an_id(tmp_path: Path) -> None:
    """A line that has none is a record without a key."""
    reader = Reader(tmp_path, "{type: json-lines, idField: name}")
    lines = ['{"name": "Ada", "n": 1}', '{"name": 7}', "[1]", "{", '{"n": 2}', '{"name": null}']
    reader.write("a.jsonl", "\n".join(lines) + "\n")

    rows = reader.read()

    assert [row["key"] for row in rows] == [b"Ada", b"7", None, None, None, None]
    assert [row["value"].decode() for row in rows] == lines


def test_csv_becomes_json(tmp_path: Path) -> None:
    """By the names in the first line, also where the file goes on; rows of another length are bad."""
    reader = Reader(tmp_path, '{type: csv, idField: name, delimiter: ";"}')
    reader.write("a.csv", 'name;text\nAda;"two\nlines"\nBob;"a ""b"""\n')
    first = reader.read()
    reader.append("a.csv", "Eve;x\nMal;y;z\n")
    second = reader.read()

    assert [(row["key"], json.loads(row["value"])) for row in first] == [
        (b"Ada", {"name": "Ada", "text": "two\nlines"}),
        (b"Bob", {"name": "Bob", "text": 'a "b"'}),
    ]
    assert [row["key"] for row in second] == [b"Eve", None]


def test_parquet_is_read_when_it_is_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In parts of a micro-batch's size; what is not whole is told of."""
    reader = Reader(tmp_path, "{type: parquet, idField: name}")
    rows = [{"name": f"n{n}", "n": n, "b": b"x"} for n in range(25)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "whole", row_group_size=4)
    content = (tmp_path / "whole").read_bytes()
    reader.write("a.parquet", content[:-3], age=60)
    with caplog.at_level(logging.WARNING):
        assert reader.read() == []
        assert reader.read() == []
    reader.write("a.parquet", content)
    reader.start(most=10)

    found = [row for _ in range(3) for row in reader.read()]

    [told] = caplog.records
    assert told.message == (
        f"ingress test/in: file {reader.folder}/a.parquet is no whole Parquet file; it is read when "
        "it is"
    )
    assert [json.loads(row["value"]) for row in found] == [
        {"name": f"n{n}", "n": n, "b": "eA=="} for n in range(25)
    ]
    assert [(row["key"], row["offset"]) for row in found] == [(b"n%d" % n, n) for n in range(25)]
    assert reader.read() == []


def test_a_micro_batch_is_the_same_after_a_crash(tmp_path: Path) -> None:
    """Whatever was written since; and its limit is the records of a micro-batch."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "".join(f"{n}\n" for n in range(250)))
    seen: list[str] = []
    for _ in range(3):
        reader.start(most=100)
        start = reader.offset
        first = reader.values()
        reader.append("a", "later\n")
        reader.start(most=100)
        reader.offset = start
        assert reader.values() == first
        assert len(first) == 100 or len(seen) == 200
        seen += first

    assert seen[:250] == [str(n) for n in range(250)]
    assert set(seen[250:]) == {"later"}


def test_the_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    """It goes on from its states of all files."""
    reader = Reader(tmp_path, "{type: lines}")
    for n in range(250):
        reader.append("a", f"{n}\n")
        if n == 120:
            (reader.folder / "a").rename(reader.folder / "b")
        assert reader.values() in ([str(n)], [str(m) for m in range(n + 1)])
    reader.start()
    reader.append("a", "end\n")

    assert reader.values() == ["end"]
    assert len(list((tmp_path / "log").iterdir())) < 210


@pytest.mark.parametrize("change", ["cut off", "replaced by another one", "deleted"])
def test_files_that_change_are_said(tmp_path: Path, change: str) -> None:
    """When they are looked at again, and when they are read."""
    reader = Reader(tmp_path, "{type: lines}")
    file = reader.write("a", "one\ntwo\nthr", age=3)
    start = reader.offset
    assert reader.values() == ["one", "two"]

    if change == "deleted":
        file.unlink()
    else:
        file.write_text("one\n" if change == "cut off" else "new\nlines\nof more bytes\n")
    with pytest.raises(
        ConnectorError, match=f"file {file} was {change} after a part of it was read; "
    ):
        reader.read()
    with pytest.raises(
        ConnectorError, match=f"file {file} was {change} after a part of it was read; "
    ):
        [list(read_task(task)) for task in reader.source.tasks(start, reader.offset)]


@pytest.mark.parametrize("change", ["cut off", "replaced by another one", "deleted"])
def test_one_may_go_on_with_files_that_change(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They are read from their beginnings, with a warning."""
    reader = Reader(tmp_path, "{type: lines}", change="go-on")
    file = reader.write("a", "one\ntwo\nthr", age=3)
    start = reader.offset
    reader.read()

    if change == "deleted":
        file.unlink()
    else:
        file.write_text("one\n" if change == "cut off" else "new\nlines\nof more bytes\n")
    planned = reader.source.tasks(start, reader.offset)
    with caplog.at_level(logging.WARNING):
        assert [list(read_task(task)) for task in planned] == [[]]
        found = reader.values()

    assert found == {"cut off": ["one"], "deleted": []}.get(
        change, ["new", "lines", "of more bytes"]
    )
    text = f"ingress test/in: file {file} was {change} after a part of it was read; going on"
    assert [record.message for record in caplog.records] == [text, text]


def test_patterns_choose_files(tmp_path: Path) -> None:
    """In a folder that is relative to the module file; a path may name one file."""
    reader = Reader(tmp_path, "{type: lines}", path="'in/*.txt'")
    reader.write("a.txt", "one\n")
    reader.write("a.csv", "two\n")
    one = Reader(tmp_path, "{type: lines}", path="in/a.csv")

    assert reader.values() == ["one"]
    assert one.source.latest_offset({"log": 0, "records": 0})["records"] == 1


def test_a_path_that_is_not_there_is_said(tmp_path: Path) -> None:
    """At the start."""
    with pytest.raises(
        ConnectorError, match=r"test/in: there is no .*nowhere; make it, or correct"
    ):
        Reader(tmp_path, "{type: lines}", path="nowhere")


def test_a_file_that_goes_on_elsewhere_is_another_one(tmp_path: Path) -> None:
    """Though it begins as before, and has more bytes."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    rows = [f"name {n},{n}\n" for n in range(1000)]
    file = reader.write("a.csv", "name,n\n" + "".join(rows), age=20)
    assert len(reader.values()) == 1000

    rows[900] = "name 900,changed\n"
    reader.write("a.csv", "name,n\n" + "".join(rows) + "more,1\n")
    with pytest.raises(ConnectorError, match=f"file {file} was replaced by another one"):
        reader.read()


def test_a_file_that_comes_back_is_known(tmp_path: Path) -> None:
    """Another one of its name is a new one, when the first was seen to be gone."""
    reader = Reader(tmp_path, "{type: lines}")
    file = reader.write("a", "one\n")
    assert reader.values() == ["one"]
    content, times = file.read_bytes(), file.stat()
    file.unlink()
    assert reader.values() == []
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert reader.values() == []
    reader.append("a", "two\n")
    assert reader.values() == ["two"]
    file.unlink()
    assert reader.values() == []
    file.write_text("another\n")
    assert reader.values() == ["another"]


def test_a_folder_that_is_not_there_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files are not taken for deleted ones."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "one\ntw", age=3)
    assert reader.values() == ["one"]
    reader.folder.rename(tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        assert reader.values() == []
        assert reader.values() == []
    (tmp_path / "away").rename(reader.folder)
    reader.append("a", "o\n")

    assert reader.values() == ["two"]
    [told] = caplog.records
    assert told.message.endswith(f"folder {reader.folder} is not there; it is waited for")


def test_a_file_of_two_paths_is_refused(tmp_path: Path) -> None:
    """Nobody could say whose it is."""
    reader = Reader(tmp_path, "{type: lines}")
    file = reader.write("a.csv", "one\n")
    text = MODULE.replace("PATH", "in").replace("FORMAT", "{type: lines}").replace("CHANGE", "fail")
    second = "files: [{path: 'in/*.csv', format: {type: lines}, valueType: a/T, targets: [a/f]}, "
    [ingress] = parse_module(
        text.replace("files: [", second), str(tmp_path / "module.yaml")
    ).connector_ingresses
    source = FileSource(ingress.settings, Folder.at(tmp_path / "other"), 10)

    with pytest.raises(
        ConnectorError, match=rf"file {file} is one of .*csv and of .*in; let only one"
    ):
        source.latest_offset(source.initial_offset())


def test_a_torn_line_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When its rest comes after all."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "one\ntw", age=60)
    assert reader.values() == ["one", "tw"]
    reader.append("a", "o\n")
    with caplog.at_level(logging.WARNING):
        assert reader.values() == ["o"]

    [told] = caplog.records
    assert "has gone on in the last line that was read" in told.message


def test_odd_quotation_marks_are_part_of_a_field(tmp_path: Path) -> None:
    """As Python's own reader takes them; one that is never closed is said before it fills the memory."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    reader.write("a.csv", 'name,n\na,5" pipe\nb,"x\ny"\nc,"open\n', age=60)
    first = reader.read()
    reader.append("a.csv", 'x"\nd,1\n')
    second = reader.read()

    assert [(row["key"], json.loads(row["value"])["n"]) for row in first] == [
        *((b"a", '5" pipe'), (b"b", "x\ny"))
    ] or len(first) == 3
    assert second[-1]["key"] == b"d"
    reader.write("b.csv", 'name,n\na,"' + "x\n" * 5_000_000)
    with pytest.raises(ConnectorError, match=r"b.csv has a row of more than .* quotation mark"):
        reader.read()


def test_ids_that_are_no_text_are_bad_records(tmp_path: Path) -> None:
    """Half an emoji ends nothing."""
    reader = Reader(tmp_path, "{type: json-lines, idField: name}")
    reader.write("a", '{"name": "\\ud83d"}\n{"name": "Ada"}\n')

    assert [row["key"] for row in reader.read()] == [None, b"Ada"]
