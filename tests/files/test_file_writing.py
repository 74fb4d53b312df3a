# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

import file_writer
import pyarrow.parquet as pq
import pytest
from file_writer import AT_ONCE, LATER, claimed, connect, files, hidden, marker, names, rows

from statefun.components.running import EgressRecord, UncertainError, read_framed, write_framed
from statefun.files import file_writing, gathered
from statefun.files.file_records import OWN_FOLDER
from statefun.runtime.checkpoint.checkpoint_files import CheckpointFiles
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.local_files import LocalFiles
from statefun.sdk.errors import ConnectorError

PARQUET = f"{AT_ONCE}, format: parquet, schema: {{name: string}}"


class CrashError(Exception):
    """The process has ended."""


def test_records_become_files(tmp_path: Path) -> None:
    """Each topic has one file for each write; a later connection reads the progress."""
    first = connect(tmp_path)
    assert first.open() is None
    first.write([], marker(-1, 0))
    first.write(rows("Ada", "Bob"), marker(3, 2))
    first.write([*rows("Eve"), *rows("Mal", topic="others")], marker(3, 4))
    first.close()

    assert connect(tmp_path).open() == marker(3, 4)
    assert connect(tmp_path, lane=1).open() is None
    [other, *own] = files(tmp_path)
    assert [names(file) for file in (other, *own)] == [["Mal"], ["Ada", "Bob"], ["Eve"]]
    assert other.parent.name == "others"
    assert re.fullmatch(r"part-000000003-000000004-[0-9a-f]{16}-0\.jsonl", other.name)


def test_parquet_has_the_columns_of_the_schema(tmp_path: Path) -> None:
    """All files have the same columns, whatever fields the records have, so that readers can merge them."""
    cluster = claimed(tmp_path, PARQUET.replace("string}", "string, age: int}"))
    cluster.write(rows("Ada", "Bob"), marker(0, 2))

    [file] = files(tmp_path)
    assert pq.read_schema(file).names == ["name", "age"]
    assert pq.read_table(file)["name"].to_pylist() == ["Ada", "Bob"]


def test_large_parquet_files_have_several_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no reader or writer has all records of a file in memory as objects."""
    monkeypatch.setattr(file_writing, "_GROUP_BYTES", 30)
    claimed(tmp_path, PARQUET).write(rows("Ada", "Bob", "Eve"), marker(0, 3))

    [file] = files(tmp_path)
    assert pq.read_metadata(file).num_row_groups == 2
    assert pq.read_table(file)["name"].to_pylist() == ["Ada", "Bob", "Eve"]


@pytest.mark.parametrize("piece", [1, 40, 1_000_000])
def test_records_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """Records of several micro-batches become one file for each topic, when there are enough of them."""
    monkeypatch.setattr(gathered, "_PIECE", piece)
    cluster = claimed(tmp_path, f"{LATER}, rollSize: 100")
    for batch in range(5):
        cluster.write([*rows(f"{batch}"), *rows(f"{batch}", topic="t")], marker(batch, 2))

    assert [names(file) for file in files(tmp_path)] == [["0", "1", "2", "3"]] * 2
    assert connect(tmp_path).open() == marker(4, 2)
    assert cluster.tend(is_last=True) is None
    assert [names(file) for file in files(tmp_path)] == [["0", "1", "2", "3"], ["4"]] * 2
    assert hidden(tmp_path) == ["marker"]


def test_files_appear_when_it_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files appear even if no record comes; the time counts from the first gathered record on."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    cluster = claimed(tmp_path, "rollEvery: 60s")
    assert cluster.tend(is_last=False) is None
    now += 1000
    cluster.write(rows("Ada"), marker(0, 1))
    now += 20
    cluster.write(rows("Bob"), marker(1, 1))
    assert (cluster.tend(is_last=False), files(tmp_path)) == (timedelta(seconds=40), [])
    now += 40

    assert cluster.tend(is_last=False) is None
    assert [names(file) for file in files(tmp_path)] == [["Ada", "Bob"]]


def test_what_a_killed_run_has_gathered_becomes_a_file_at_the_next_start(tmp_path: Path) -> None:
    """The next run writes the file before any other record."""
    claimed(tmp_path, LATER).write(rows("Ada"), marker(0, 1))
    assert files(tmp_path) == []

    claimed(tmp_path, LATER, "next")
    assert [names(file) for file in files(tmp_path)] == [["Ada"]]


@contextmanager
def crashing(step: int, *, after: bool) -> Iterator[None]:
    """Let the process end before or after one of the steps that change the folder."""
    steps = count()

    def counted(change: Callable[..., None]) -> Callable[..., None]:
        def call(self: Folder, *arguments: object) -> None:
            is_now = next(steps) == step
            if is_now and not after:
                raise CrashError
            change(self, *arguments)
            if is_now:
                raise CrashError

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "move", "remove"):
            patch.setattr(Folder, name, counted(getattr(Folder, name)))
        yield


class Application:
    """Publishes batches into a folder, from which somebody takes files away at once."""

    def __init__(self, folder: Path, more: str) -> None:
        self.folder, self.more = folder, more
        self.batches = {
            batch: [*rows(f"{batch}a", f"{batch}b"), *rows(f"{batch}c", topic="t")]
            for batch in range(3)
        }
        self.taken: list[str] = []

    def run(self, owner: str) -> None:
        """Publish what is missing."""
        cluster = claimed(self.folder, self.more, owner)
        found = cluster.open()
        assert found is not None
        for batch, records in self.batches.items():
            if batch > found.batch:
                cluster.write(records, marker(batch, 3, owner))
                self.take()
        cluster.tend(is_last=True)

    def take(self) -> None:
        """Take away all files that readers see."""
        for file in files(self.folder):
            self.taken += names(file)
            file.unlink()


@pytest.mark.parametrize("more", [AT_ONCE, LATER, f"{LATER}, rollSize: 80"])
@pytest.mark.parametrize("piece", [1, 60])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_neither_loses_nor_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, piece: int, *, after: bool
) -> None:
    """A crash at any two steps, also if somebody takes files away as soon as they appear."""
    monkeypatch.setattr(gathered, "_PIECE", piece)
    for step in count():
        application = Application(tmp_path / str(step), more)
        crashes = 0
        for run, at in enumerate((step, step // 2)):
            try:
                with crashing(at, after=after):
                    application.run(f"{run}-run")
            except CrashError:
                crashes += 1
            application.take()
        application.run("last")
        application.take()

        expected = [record.value for records in application.batches.values() for record in records]
        assert sorted(application.taken) == sorted(
            json.loads(each or b"")["name"] for each in expected
        )
        assert [each for each in application.taken if "c" not in each] == [
            f"{batch}{each}" for batch in range(3) for each in "ab"
        ]
        assert hidden(application.folder) == ["marker"]
        if not crashes:
            break
    assert step > 5


def columns(text: str) -> str:
    """Return the keys of an egress that gathers records for Parquet files with a schema."""
    return f"{LATER}, format: parquet, schema: {text}"


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (LATER, columns("{title: string}")),
        (columns("{name: string}"), columns("{title: string}")),
        (columns("{name: string}"), columns("{name: bigint}")),
        (columns("{name: string}"), LATER),
    ],
)
def test_gathered_records_keep_their_schema(tmp_path: Path, former: str, present: str) -> None:
    """If schema or format changes after a killed run, its records become a file as that run would have made it."""
    claimed(tmp_path, former).write(rows("Ada"), marker(0, 1))
    cluster = claimed(tmp_path, present, "next")
    cluster.write([EgressRecord(OWN_FOLDER, None, b"{}", None)], marker(1, 1, "next"))
    cluster.tend(is_last=True)

    found = [
        pq.read_table(file).to_pylist()
        if file.suffix == ".parquet"
        else [*map(json.loads, file.read_text().splitlines())]
        for file in files(tmp_path)
    ]
    empty = {} if present == LATER else {re.findall(r"(\w+): \w+}", present)[0]: None}
    assert found == [[{"name": "Ada"}], [empty]]


def test_records_of_another_schema_are_not_gathered(tmp_path: Path) -> None:
    """The error names the egress, its folder and the remedy, which helps."""
    cluster = claimed(tmp_path, columns("{title: string}"))
    text = f"egress a/b: records for folder {tmp_path}/out do not fit the schema: .*start once with the former"
    with pytest.raises(ConnectorError, match=text):
        cluster.write(rows("Ada"), marker(0, 1))
    claimed(tmp_path, columns("{name: string}"), "next").write(rows("Ada"), marker(0, 1, "next"))
    claimed(tmp_path, columns("{title: string}"), "last")

    [file] = files(tmp_path)
    assert pq.read_table(file).to_pylist() == [{"name": "Ada"}]


def test_progress_of_an_earlier_version_has_no_schema(tmp_path: Path) -> None:
    """Its gathered records are written with the present schema; if they do not fit, the error says what to do."""
    claimed(tmp_path, columns("{name: string}")).write(rows("Ada"), marker(0, 1))
    own = Folder(str(next((tmp_path / "out" / "_statefun").iterdir())))
    head, _, rest = read_framed(own, "marker").partition(b"\n")
    content = {name: each for name, each in json.loads(head).items() if name != "schema"}
    write_framed(own, "marker", json.dumps(content).encode() + b"\n" + rest)
    with pytest.raises(
        ConnectorError, match=r"do not fit the schema: .*start once with the former"
    ):
        claimed(tmp_path, columns("{title: string}"), "next")
    claimed(tmp_path, columns("{name: string}"), "last")

    [file] = files(tmp_path)
    assert pq.read_table(file).to_pylist() == [{"name": "Ada"}]


def test_another_run_keeps_an_earlier_one_from_writing(tmp_path: Path) -> None:
    """A run that has claimed the lane fences the earlier run."""
    earlier = claimed(tmp_path, owner="earlier")
    earlier.write(rows("Ada"), marker(0, 1, "earlier"))
    claimed(tmp_path, owner="later")

    with pytest.raises(
        UncertainError, match=r"another run has written to .* since this run has opened it"
    ):
        earlier.write(rows("Bob"), marker(1, 1, "earlier"))
    assert [names(file) for file in files(tmp_path)] == [["Ada"]]


def test_an_earlier_run_cannot_change_what_a_later_one_has_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier run changes neither records nor pieces; the records that it had gathered are in a file."""
    monkeypatch.setattr(gathered, "_PIECE", 1)
    earlier = claimed(tmp_path, LATER, "earlier")
    earlier.write(rows("Ada"), marker(0, 1, "earlier"))
    later = claimed(tmp_path, LATER, "later")
    later.write(rows("Bob"), marker(1, 1, "later"))
    with pytest.raises(UncertainError):
        earlier.write(rows("Eve"), marker(1, 1, "earlier"))
    with pytest.raises(UncertainError):
        earlier.tend(is_last=True)
    later.tend(is_last=True)

    assert [names(file) for file in files(tmp_path)] == [["Ada"], ["Bob"]]


def test_a_piece_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If somebody has deleted a piece, the lane does not go on without its records."""
    monkeypatch.setattr(gathered, "_PIECE", 1)
    cluster = claimed(tmp_path, LATER)
    cluster.write(rows("Ada"), marker(0, 1))
    [piece] = (tmp_path / "out").rglob("*-piece-*")
    piece.unlink()

    with pytest.raises(ConnectorError, match=f"egress a/b: the file {piece}, which .* is missing"):
        cluster.tend(is_last=True)


def test_secrets_of_a_folder_are_in_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors have the names of the options in a folder's URI, and not their values."""
    local = LocalFiles()

    def located(folder: Folder) -> tuple[CheckpointFiles, str]:
        return local, folder.location.partition("?")[0].replace("s3://bucket", str(tmp_path))

    monkeypatch.setattr(Folder, "_files", property(located))
    monkeypatch.setattr(gathered, "_PIECE", 1)
    uri = "'s3://bucket/out?access_key=SECRET'"
    monkeypatch.setattr(
        file_writer, "TEXT", file_writer.TEXT.replace("folder: out", f"folder: {uri}")
    )
    _, path = connect(tmp_path, LATER)._own._files  # noqa: SLF001 - object stores need no folders
    Path(path).mkdir(parents=True)
    cluster = claimed(tmp_path, LATER)
    cluster.write(rows("Ada"), marker(0, 1))
    [piece] = (tmp_path / "out").rglob("*-piece-*")
    piece.unlink()

    with pytest.raises(ConnectorError, match="is missing") as caught:
        cluster.tend(is_last=True)
    assert "SECRET" not in str(caught.value)


def test_folders_of_topics_outlive_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new folder is synced in its parent, and each file in the folder."""
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    cluster = claimed(tmp_path)
    monkeypatch.setattr(os, "fsync", note)
    cluster.write(rows("Ada", topic="t"), marker(0, 1))

    out = str(tmp_path / "out")
    assert synced.index(out) < synced.index(f"{out}/t")


def test_a_folder_that_is_not_mounted_at_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written below the place where it is mounted; a folder that was deleted for good can be replaced."""
    claimed(tmp_path).write(rows("Ada"), marker(0, 1))
    (tmp_path / "out").rename(tmp_path / "away")
    for is_there in (False, True):
        if is_there:
            (tmp_path / "out").mkdir()
        with pytest.raises(
            UncertainError, match="is missing; mount the file system of the folder, or restore"
        ):
            claimed(tmp_path, owner="next")
        assert hidden(tmp_path) == []
    with monkeypatch.context() as patch:
        patch.setattr(file_writer, "TEXT", file_writer.TEXT.replace("folder: out", "folder: other"))
        claimed(tmp_path, LATER, "next")
    claimed(tmp_path, owner="last")

    assert hidden(tmp_path) == ["marker"]


def test_a_claim_that_fails_once_is_noted_by_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has the marker of the run by then, so the next connection claims nothing."""
    write, failures = Folder.write, [OSError("slow down")]

    def fail_once(folder: Folder, name: str, content: bytes) -> None:
        if name.endswith(".folder") and failures:
            raise failures.pop()
        write(folder, name, content)

    monkeypatch.setattr(Folder, "write", fail_once)
    with pytest.raises(UncertainError, match="slow down"):
        claimed(tmp_path)
    claimed(tmp_path).write(rows("Ada"), marker(0, 1))
    (tmp_path / "out").rename(tmp_path / "away")

    with pytest.raises(UncertainError, match="is missing; mount"):
        claimed(tmp_path, owner="next")


def test_a_restored_application_waits_for_the_folder_of_the_lost_one(tmp_path: Path) -> None:
    """It ends what the lost one has begun, with the former id of the query, before it claims a lane of its own."""
    claimed(tmp_path, LATER).write(rows("Ada"), marker(0, 1))
    (tmp_path / "out").rename(tmp_path / "away")

    with pytest.raises(UncertainError, match="is missing; mount"):
        connect(tmp_path).open()


def test_a_folder_that_is_mounted_again_has_the_progress(tmp_path: Path) -> None:
    """The lane goes on where it has ended."""
    claimed(tmp_path).write(rows("Ada"), marker(0, 1))
    (tmp_path / "out").rename(tmp_path / "away")
    with pytest.raises(UncertainError):
        claimed(tmp_path, owner="next")
    (tmp_path / "away").rename(tmp_path / "out")
    claimed(tmp_path, owner="next").write(rows("Bob"), marker(1, 1, "next"))

    assert [names(file) for file in files(tmp_path)] == [["Ada"], ["Bob"]]


def test_a_disk_that_fails_is_tried_again(tmp_path: Path) -> None:
    """The lane gets UncertainError, and tries again with a new connection."""
    (tmp_path / "out").write_text("no folder")

    with pytest.raises(UncertainError):
        connect(tmp_path).write([], marker(-1, 0))
