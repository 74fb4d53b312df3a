# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_reader import MODULE, Reader

from statefun.components.running import PROBLEM_HEADER, FileFacts, Folder
from statefun.files.file_source import FileSource
from statefun.files.parsing import read_task
from statefun.files.scanning import LONGEST, SHOWN
from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.checkpoint_files import CheckpointFiles
from statefun.runtime.checkpoint.local_files import LocalFiles
from statefun.sdk.errors import ConnectorError

CALLS_FOR_A_NAME = 20
"""How many calls a listing takes for each file that it returns, at most."""


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Return the names of files, the numbers of lines, and the offsets."""
    found = []
    for row in rows:
        headers = {header["key"]: header["value"] for header in row["headers"]}
        name = Path(headers["file.path"].decode()).name
        found.append((name, int(headers["file.line"]), row["offset"]))
    return found


def test_files_grow_and_come(tmp_path: Path) -> None:
    """Whole lines are read, in the order of the files' age; blank lines are left out."""
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
    """Files without a change for a while are complete; in a bounded run the time is shorter."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("quiet", "one\ntwo", age=60)
    reader.write("new", "three\nfour", age=3)

    assert reader.values() == ["one", "three"]
    assert reader.values() == []
    reader.clock.seconds += 10
    assert reader.values() == ["two", "four"]
    reader.write("newer", "five\nsix")
    reader.start()
    reader.source.bound()
    assert reader.values() == ["five"]
    assert reader.values() == ["six"]


def test_json_lines_have_an_id(tmp_path: Path) -> None:
    """A line without an id is a record without a key."""
    reader = Reader(tmp_path, "{type: json-lines, idField: name}")
    lines = ['{"name": "Ada", "n": 1}', '{"name": 7}', "[1]", "{", '{"n": 2}', '{"name": null}']
    reader.write("a.jsonl", "\n".join(lines) + "\n")

    rows = reader.read()

    assert [row["key"] for row in rows] == [b"Ada", b"7", None, None, None, None]
    assert [row["value"].decode() for row in rows] == lines


def test_csv_becomes_json(tmp_path: Path) -> None:
    """The first line names the fields, also of rows that are appended; rows of another length are bad."""
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
    """A file is read in parts of a micro-batch's size; the log has an incomplete file once, and none without rows."""
    reader = Reader(tmp_path, "{type: parquet, idField: name}")
    rows = [{"name": f"n{n}", "n": n, "b": b"x"} for n in range(25)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "whole", row_group_size=4)
    content = (tmp_path / "whole").read_bytes()
    pq.write_table(pa.Table.from_pylist(rows)[:0], tmp_path / "whole")
    reader.write("0.parquet", (tmp_path / "whole").read_bytes(), age=60)
    reader.write("a.parquet", content[:-3], age=60)
    with caplog.at_level(logging.WARNING):
        assert reader.read() == []
        reader.clock.seconds += 10
        assert reader.read() == []
        assert reader.read() == []
    reader.write("a.parquet", content)
    reader.start(most=10)

    found = [row for _ in range(3) for row in reader.read()]

    [log_record] = caplog.records
    assert log_record.message == (
        f"ingress test/in: file {reader.folder}/a.parquet is not a complete Parquet file; waiting for "
        "the rest of the file"
    )
    assert [json.loads(row["value"]) for row in found] == [
        {"name": f"n{n}", "n": n, "b": "eA=="} for n in range(25)
    ]
    assert [(row["key"], row["offset"]) for row in found] == [(b"n%d" % n, n) for n in range(25)]
    assert reader.read() == []


def test_a_micro_batch_is_the_same_after_a_crash(tmp_path: Path) -> None:
    """Whatever was written since; and no micro-batch has more records than its limit."""
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
    """Old entries are deleted, and a start uses the states of all files that the log keeps."""
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


@pytest.mark.parametrize("change", ["cut off", "replaced by another file", "deleted"])
def test_files_that_change_end_the_run(tmp_path: Path, change: str) -> None:
    """The run ends when the source examines the file, and when a task reads it."""
    reader = Reader(tmp_path, "{type: lines}")
    file = reader.write("a", "one\ntwo\nthr", age=3)
    start = reader.offset
    assert reader.values() == ["one", "two"]

    reader.write("other", "")
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


@pytest.mark.parametrize("change", ["cut off", "replaced by another file", "deleted"])
def test_files_that_change_may_be_read_again(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Changed files are read from their beginnings, and the log has a warning."""
    reader = Reader(tmp_path, "{type: lines}", change="go-on")
    file = reader.write("a", "one\ntwo\nthr", age=3)
    start = reader.offset
    reader.read()

    reader.write("other", "")
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
    text = f"ingress test/in: file {file} was {change} after a part of it was read; "
    assert [record.message for record in caplog.records] == [
        f"{text}the part of it that this micro-batch was to read is skipped",
        f"{text}the application goes on; a file that is at this path now is read from its beginning",
    ]


def test_patterns_choose_files(tmp_path: Path) -> None:
    """A pattern selects files of a folder that is relative to the module file; a path may name one file."""
    reader = Reader(tmp_path, "{type: lines}", path="'in/*.txt'")
    reader.write("a.txt", "one\n")
    reader.write("a.csv", "two\n")
    one = Reader(tmp_path, "{type: lines}", path="in/a.csv")

    assert reader.values() == ["one"]
    assert one.source.latest_offset({"log": 0, "records": 0})["records"] == 1


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    """The start fails, and names the path."""
    with pytest.raises(
        ConnectorError, match=r"test/in: path .*nowhere does not exist; create the folder or file"
    ):
        Reader(tmp_path, "{type: lines}", path="nowhere")


def test_a_file_that_goes_on_elsewhere_is_another_one(tmp_path: Path) -> None:
    """A file with another middle part is another file, even if it begins as before and is larger."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    rows = [f"name {n},{n}\n" for n in range(1000)]
    file = reader.write("a.csv", "name,n\n" + "".join(rows), age=20)
    assert len(reader.values()) == 1000

    rows[900] = "name 900,changed\n"
    reader.write("a.csv", "name,n\n" + "".join(rows) + "more,1\n")
    with pytest.raises(ConnectorError, match=f"file {file} was replaced by another file"):
        reader.read()


def test_a_file_that_comes_back_is_known(tmp_path: Path) -> None:
    """Another file with its name is a new file, if a look has not found the first one in between."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("other", "")
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


def test_a_missing_folder_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files of a missing folder do not count as deleted."""
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
    [log_record] = caplog.records
    assert log_record.message.endswith(
        f"folder {reader.folder} does not exist; waiting until the folder has files"
    )


@pytest.mark.parametrize("seconds", [300_000_000_000, -70_000_000_000])
def test_a_time_that_no_record_can_have_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """The records of a file of the year 11476, as a broken clock makes it, are of the last year that there is."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "one\n")
    monkeypatch.setattr(
        "statefun.runtime.checkpoint.local_files._facts",  # not each file system stores such a time
        lambda found: FileFacts(found.st_size, seconds * 10**9),
    )

    [row] = reader.read()
    assert row["timestamp"].year == (9999 if seconds > 0 else 1)


def test_a_file_of_two_paths_is_refused(tmp_path: Path) -> None:
    """It would not be clear to which of the paths the file belongs."""
    reader = Reader(tmp_path, "{type: lines}")
    file = reader.write("a.csv", "one\n")
    text = (
        MODULE.replace("PATH", "in")
        .replace("FORMAT", "{type: lines}")
        .replace("CHANGE", "fail")
        .replace("MORE", "")
    )
    second = "files: [{path: 'in/*.csv', format: {type: lines}, valueType: a/T, targets: [a/f]}, "
    [ingress] = parse_module(
        text.replace("files: [", second), str(tmp_path / "module.yaml")
    ).connector_ingresses
    source = FileSource(ingress.settings, Folder.at(tmp_path / "other"), 10, committed=lambda: None)

    with pytest.raises(
        ConnectorError, match=rf"file {file} belongs to two paths, .*csv and .*in; change a path"
    ):
        source.latest_offset(source.initial_offset())


def test_a_torn_line_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has a warning when the rest of a line comes after its beginning was read as a record."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "one\ntw", age=60)
    assert reader.values() == ["one"]
    reader.clock.seconds += 10
    assert reader.values() == ["tw"]
    reader.append("a", "o\n")
    with caplog.at_level(logging.WARNING):
        assert reader.values() == ["o"]

    [log_record] = caplog.records
    assert "was read and has become longer since" in log_record.message


def problems(rows: list[dict[str, Any]]) -> list[str]:
    """Return why records have no keys."""
    return [
        header["value"].decode()
        for row in rows
        for header in row["headers"]
        if header["key"] == PROBLEM_HEADER
    ]


def test_a_byte_order_mark_does_not_hide_a_quotation_mark(tmp_path: Path) -> None:
    """The first name may have a line break, as other fields."""
    reader = Reader(tmp_path, "{type: csv, idField: id}")
    reader.write("a.csv", b'\xef\xbb\xbf"long\nname",id\n"x\ny",1\n')

    assert [json.loads(value) for value in reader.values()] == [{"long\nname": "x\ny", "id": "1"}]


def test_a_quotation_mark_that_is_not_closed_is_a_bad_record(tmp_path: Path) -> None:
    """Only the line is rejected, once the file does not change; other quotation marks belong to fields."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    file = reader.write("a.csv", 'name,n\na,5" pipe\nb,"x\ny"\nc,"open\nd,1\n')
    first = reader.read()
    assert reader.read() == []
    reader.clock.seconds += 10
    second = reader.read()

    assert [json.loads(row["value"])["n"] for row in first] == ['5" pipe', "x\ny"]
    assert [(row["key"], row["value"]) for row in second] == [
        *((None, b'c,"open\n'), (b"d", b'{"name": "d", "n": "1"}'))
    ]
    assert problems(second) == [
        f"file {file}, row 4: a quotation mark is not closed, from byte 25 on"
    ]


def test_an_endless_row_is_a_bad_record_before_it_fills_the_memory(tmp_path: Path) -> None:
    """So is a row of a file that grows, and a file whose first line has no end."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    reader.write("a.csv", 'name,n\na,"' + "x\n" * 100_001 + "b,1\n")
    reader.start(most=200_000)
    rows = reader.read()
    reader.write("b.csv", 'name,"n\na,1\n')
    assert reader.read() == []
    reader.clock.seconds += 10
    [refused] = reader.read()

    assert (rows[0]["key"], rows[-1]["key"], len(rows)) == (None, b"b", 100_002)
    assert "a quotation mark is not closed" in problems(rows)[0]
    assert "b.csv, row 1: the first line must name the fields, but " in problems([refused])[0]


def test_rows_after_a_bad_first_line_are_rejected(tmp_path: Path) -> None:
    """Also those that come later: their fields have no names."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    reader.write("a.csv", '"name,n\na,1\n')
    assert reader.read() == []
    reader.clock.seconds += 10
    assert [row["value"] for row in reader.read()] == [b'"name,n\na,1\n']
    reader.append("a.csv", "b,2\nc,3\n")

    rows = reader.read()
    assert [(row["key"], row["value"]) for row in rows] == [(None, b"b,2"), (None, b"c,3")]
    assert "a.csv, row 2: the row has 2 fields, but the first line " in problems(rows)[0]


@pytest.mark.parametrize("format_", ["{type: lines}", "{type: csv, idField: name}"])
def test_a_line_that_is_too_long_is_a_bad_record(tmp_path: Path, format_: str) -> None:
    """The problem has the place of the line; the other lines are read."""
    reader = Reader(tmp_path, format_)
    file = reader.write("a", "name\none\n" + "x" * (LONGEST + 5) + "\ntwo\n")

    rows = [row for row in reader.read() if row["key"] != b"name"]

    assert [row["key"] for row in rows] == [b"one", None, b"two"]
    assert len(rows[1]["value"]) == SHOWN
    what = "a line has 8,388,614 bytes, more than the limit of 8,388,608, from byte 9 on"
    unit = "line" if "lines" in format_ else "row"
    assert problems(rows) == [f"file {file}, {unit} 3: {what}"]


def test_columns_of_one_name_make_bad_records(tmp_path: Path) -> None:
    """It is not clear which column counts; rows with another number of fields are bad records, too."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    reader.write("a.csv", "name,n,n\nAda,1,2\n")
    reader.write("b.csv", "name,n\nAda,1,2\n", age=9)
    rows = reader.read()

    assert [(row["key"], row["value"]) for row in rows] == [(None, b"Ada,1,2")] * 2
    assert [text.partition(": ")[2] for text in problems(rows)] == [
        "the row has 3 fields, but the first line of the file names 2",
        "two columns of the file are named 'n'",
    ]


def test_carriage_returns_are_kept(tmp_path: Path) -> None:
    """Carriage returns in fields are kept; those at the end of a row belong to the line break."""
    reader = Reader(tmp_path, "{type: csv, idField: name}")
    reader.write("a.csv", b'name,n\r\na,"x\ry\r\nz"\r\nb,x\ry\0\n')

    assert [json.loads(row["value"])["n"] for row in reader.read()] == ["x\ry\r\nz", "x\ry\0"]


def test_a_damaged_parquet_file_is_a_bad_record(tmp_path: Path) -> None:
    """A damaged page spoils its row group, a damaged footer the file; another file may replace that."""
    reader = Reader(tmp_path, "{type: parquet, idField: name}")
    rows = [{"name": f"n{n}", "n": n} for n in range(30)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "whole", row_group_size=10)
    content = (tmp_path / "whole").read_bytes()
    column = pq.ParquetFile(tmp_path / "whole").metadata.row_group(1).column(0)
    at = column.dictionary_page_offset or column.data_page_offset
    page = content[:at] + b"\xff" * 40 + content[at + 40 :]
    file = reader.write("a.parquet", page)
    found = reader.read()

    assert [row["key"] for row in found] == [
        *(b"n%d" % n for n in range(10)),
        None,
        *(b"n%d" % n for n in range(20, 30)),
    ]
    [problem] = problems(found)
    assert problem.startswith(f"file {file}, row 11: rows 11 to 20 of row group 1 cannot be ")

    footer = reader.write("b.parquet", content[:-100] + b"\xff" * 80 + content[-20:])
    assert reader.read() == []
    reader.clock.seconds += 10
    [problem] = problems(reader.read())
    assert problem.startswith(f"file {footer}, row 1: the footer cannot be decoded: ")
    reader.write("b.parquet", content)
    assert len(reader.read()) == 30


def test_an_unfinished_line_may_have_to_wait(tmp_path: Path) -> None:
    """With unfinishedLine: wait, a line without a line break is not read, however long its writer pauses."""
    reader = Reader(tmp_path, "{type: lines}", more="unfinishedLine: wait")
    reader.write("a", "one\ntw", age=60)
    assert reader.values() == ["one"]
    reader.clock.seconds += 60
    assert reader.values() == []
    reader.source.bound()
    assert reader.values() == []
    reader.append("a", "o\n")
    reader.start()
    assert reader.values() == ["two"]


def test_a_bounded_run_reads_a_folder_that_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Up to what its files contain when they are there again; the log says that the run does not wait."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "one\n")
    assert reader.values() == ["one"]
    reader.write("b", "two\n")
    reader.folder.rename(tmp_path / "away")
    reader.folder.mkdir()
    reader.start()
    reader.source.bound()
    with caplog.at_level(logging.WARNING):
        assert reader.values() == []
    reader.folder.rmdir()
    (tmp_path / "away").rename(reader.folder)

    assert reader.values() == ["two"]
    reader.append("b", "three\n")
    assert [reader.values() for _ in range(3)] == [[]] * 3
    [message] = caplog.messages
    assert message.endswith("this run reads its files only if they are there before the run ends")


def test_folders_that_lose_all_files_are_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system that is not mounted does not make the source read all files again."""
    reader = Reader(tmp_path, "{type: lines}")
    for name in ("a", "b"):
        reader.write(name, f"{name}\nmo", age=30 * 24 * 3600)
    assert reader.values() == ["a", "b"]
    reader.folder.rename(tmp_path / "away")
    reader.folder.mkdir()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            reader.start()
            assert reader.read() == []
    reader.folder.rmdir()
    (tmp_path / "away").rename(reader.folder)

    assert reader.values() == []
    assert {record.message for record in caplog.records} == {
        f"ingress test/in: all files of folder {reader.folder} have disappeared at once; waiting until the folder has files"
    }


def test_old_files_that_come_back_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is known for seven days after its disappearance; later it is a new file."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("other", "")
    file, away = reader.write("a", "one\n", age=30 * 24 * 3600), tmp_path / "away"
    assert reader.values() == ["one"]
    for _ in range(3):
        file.rename(away)
        for _ in range(3):
            reader.start()
            assert reader.read() == []
        away.rename(file)
        assert reader.values() == []
    file.rename(away)
    assert reader.values() == []
    day, now = 24 * 3600 * 10**9, time.time_ns()
    monkeypatch.setattr("time.time_ns", lambda: now + 8 * day)
    reader.start()
    assert reader.values() == []
    away.rename(file)
    assert reader.values() == ["one"]


@pytest.mark.parametrize("after", ["delete", "move"])
def test_files_are_taken_away_when_they_were_read(tmp_path: Path, after: str) -> None:
    """After the commit, once they have not changed for a while; a later file of the same name is new."""
    reader = Reader(tmp_path, "{type: lines}", more=f"afterRead: {after}")
    committed = reader.offset
    reader.committed = lambda: committed
    reader.start()
    file = reader.write("a", "one\n")
    assert reader.values() == ["one"]
    for _ in range(3):
        reader.clock.seconds += 60
        assert (reader.read(), file.exists()) == ([], True)  # not committed
    reader.start()
    assert (reader.read(), file.exists()) == ([], True)  # not still as far as this run knows
    reader.clock.seconds += 60
    committed = reader.offset
    assert (reader.read(), file.exists()) == ([], False)
    for text in ("one", "two"):
        reader.write("a", f"{text}\n")
        assert reader.values() == [text]
        committed = reader.offset
        reader.clock.seconds += 60
        assert (reader.read(), file.exists()) == ([], False)
    moved = sorted((reader.folder / "_read").glob("*"))
    assert [each.name for each in moved] == (["a", "a.1", "a.2"] if after == "move" else [])


def test_a_crash_after_taking_away_is_no_loss(tmp_path: Path) -> None:
    """If a run crashes before the log forgets the file, the next run does so and reads other files."""
    reader = Reader(tmp_path, "{type: lines}", more="afterRead: delete")
    file = reader.write("a", "one\n")
    assert reader.values() == ["one"]
    before = reader.offset
    reader.clock.seconds += 60
    assert (reader.read(), file.exists()) == ([], False)
    (tmp_path / "log" / f"{reader.offset['log']:012}.json").unlink()
    reader.offset = before
    reader.start()
    reader.write("a", "two, in its place\n")

    assert reader.values() == ["two, in its place"]


def test_a_file_that_grows_is_not_taken_away(tmp_path: Path) -> None:
    """The new lines are read first."""
    reader = Reader(tmp_path, "{type: lines}", more="afterRead: delete")
    file = reader.write("a", "one\n")
    assert reader.values() == ["one"]
    reader.clock.seconds += 7
    reader.append("a", "two\n")
    assert reader.values() == ["two"]
    reader.clock.seconds += 5
    assert (reader.read(), file.exists()) == ([], True)
    reader.clock.seconds += 5
    assert (reader.read(), file.exists()) == ([], False)


def test_an_idle_ingress_asks_the_checkpoint_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no request to the checkpoint, and lists the folder only when it is time for a look."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "one\n")
    assert reader.values() == ["one"]
    reader.read()
    for name in ("names", "has", "files", "exists", "open"):
        monkeypatch.delattr(Folder, name)
    for _ in range(100):
        assert reader.source.latest_offset(reader.offset) == reader.offset


def test_a_known_file_takes_little_memory(tmp_path: Path) -> None:
    """It has a path, a state with a digest, and the facts of the last look: folders may have many files."""
    reader = Reader(tmp_path, "{type: lines}")
    count = 500
    for number in range(count):
        reader.write(f"{number:060}", "one\n")
    assert (
        reader.source.latest_offset(reader.offset)["records"] == count
    )  # imports and makes all else
    shutil.rmtree(tmp_path / "log")
    gc.collect()
    tracemalloc.start()
    try:
        reader.start()
        reader.offset = reader.source.latest_offset(reader.offset)
        gc.collect()
        found = tracemalloc.take_snapshot().statistics("filename")
    finally:
        tracemalloc.stop()

    assert reader.offset["records"] == count
    assert sum(each.count for each in found) < 8 * count
    assert sum(each.size for each in found) < 800 * count


def test_ids_that_are_no_text_are_bad_records(tmp_path: Path) -> None:
    """A half of a surrogate pair is rejected, and does not end the run."""
    reader = Reader(tmp_path, "{type: json-lines, idField: name}")
    reader.write("a", '{"name": "\\ud83d"}\n{"name": "Ada"}\n')

    assert [row["key"] for row in reader.read()] == [None, b"Ada"]


def test_secrets_of_a_path_identify_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No record, log line or checkpoint has them; a planned micro-batch is read with new credentials."""
    local = LocalFiles()

    def located(folder: Folder) -> tuple[CheckpointFiles, str]:
        path = folder.location.partition("?")[0]
        return local, path.replace("s3://me@bucket", str(tmp_path)).replace(
            "s3://you@bucket", str(tmp_path)
        )

    monkeypatch.setattr(Folder, "_files", property(located))
    path = "'s3://me@bucket/in/*?access_key=SECRET'"
    reader = Reader(tmp_path, "{type: lines}", path=path)
    reader.write("a", "one\n")
    start = reader.offset
    first = reader.read()
    reader.write("a", "").unlink()
    with caplog.at_level(logging.WARNING):
        assert reader.read() == []
    reader.write("a", "one\n")
    log = b"".join(each.read_bytes() for each in (tmp_path / "log").iterdir())
    rotated = Reader(
        tmp_path, "{type: lines}", path=path.replace("SECRET", "new").replace("me", "you")
    )
    rotated.offset = start

    assert [row["topic"] for row in first] == ["s3://bucket/in/*"]
    assert not any(text in f"{first}{log!r}{caplog.text}" for text in ("SECRET", "me@"))
    assert rotated.read() == first
    assert rotated.read() == []


def test_a_file_is_still_if_a_look_has_found_it_so(tmp_path: Path) -> None:
    """Time alone does not make it complete: its writer may have appended to it since the last look."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.write("a", "one\ntw")
    assert reader.values() == ["one"]
    for _ in range(4):
        assert reader.values() == []
    reader.clock.seconds -= 0.1
    assert reader.values() == []
    reader.clock.seconds -= 1.9  # the next look is later than 10 seconds after the first one
    reader.append("a", "o\n")
    assert reader.values() == []
    assert reader.values() == ["two"]


def test_a_folder_may_go_away_between_a_look_and_reading(tmp_path: Path) -> None:
    """When the folder is back, its files are unchanged and are read."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.start(most=1)
    reader.write("a", "one\n", age=5)
    reader.write("b", "two\n")
    assert reader.values() == ["one"]
    reader.folder.rename(tmp_path / "away")
    reader.clock.seconds -= 2  # no time for a look
    assert reader.values() == []
    (tmp_path / "away").rename(reader.folder)

    assert reader.values() == ["two"]


@pytest.mark.parametrize("change", ["fail", "go-on"])
def test_a_planned_micro_batch_waits_for_its_folder(tmp_path: Path, change: str) -> None:
    """A folder without files is treated as one that is not mounted, whatever onChange is."""
    reader = Reader(tmp_path, "{type: lines}", change=change)
    file = reader.write("a", "one\n")
    end = reader.source.latest_offset(reader.offset)
    reader.folder.rename(tmp_path / "away")
    reader.folder.mkdir()
    (task,) = reader.source.tasks(reader.offset, end)
    with pytest.raises(
        ConnectorError, match=f"file {file} cannot be read: its folder has no files"
    ):
        list(read_task(task))
    reader.folder.rmdir()
    (tmp_path / "away").rename(reader.folder)

    assert reader.values() == ["one"]


@pytest.mark.parametrize("change", ["deleted", "cut off"])
def test_losses_before_reading_are_logged(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a warning about listed files that changed before a micro-batch had room for them."""
    reader = Reader(tmp_path, "{type: lines}")
    reader.start(most=1)
    reader.write("a", "one\n", age=5)
    file = reader.write("b", "two\nthree\n")
    assert reader.values() == ["one"]
    if change == "deleted":
        file.unlink()
    else:
        reader.write("b", "two\n")
    with caplog.at_level(logging.WARNING):
        assert reader.values() == ([] if change == "deleted" else ["two"])

    [record] = caplog.records
    what = {
        "deleted": "before it was read, so its records are lost",
        "cut off": "before all of it was read; the lost part is not read",
    }
    assert record.message == f"ingress test/in: file {file} was {change} {what[change]}"


def calls_of(action: Callable[[], object]) -> int:
    """Return how many functions of Python and of C an action calls."""
    count = 0

    def look(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def test_the_work_for_a_micro_batch_does_not_follow_the_number_of_known_files(
    tmp_path: Path,
) -> None:
    """Only a listing compares each name that it returns, in a few calls; between two listings, no file is looked at."""
    known_files = (50, 550)
    between, listing = list[int](), list[int]()
    for known in known_files:
        folder = tmp_path / str(known)
        folder.mkdir()
        reader = Reader(folder, "{type: lines}")
        for number in range(known):
            reader.write(f"{number:04}", "one\n", age=60)
        reader.start(most=10_000)
        assert len(reader.read()) == known
        assert reader.read() == []  # once, all known files are looked for
        reader.write("new", "two\n")
        reader.clock.seconds += 30
        start = reader.offset
        listing.append(calls_of(partial(reader.source.latest_offset, reader.offset)))
        reader.offset = {"log": start["log"] + 1, "records": start["records"] + 1}
        reader.read()  # lists the folder once more, and then waits until it does so again
        between.append(calls_of(partial(reader.source.latest_offset, reader.offset)))

    assert between[0] == between[1]
    assert listing[1] - listing[0] <= CALLS_FOR_A_NAME * (known_files[1] - known_files[0])
