# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from file_reader import Reader

from statefun.components.running import FileFacts, Folder

OPERATIONS = (
    "exists",
    "facts",
    "files",
    "has",
    "move",
    "names",
    "open",
    "remove",
    "sync_names",
    "write",
)


class CrashError(Exception):
    """The process has ended."""


@contextmanager
def crashing(step: int, *, after: bool) -> Iterator[None]:
    """Let the process end before or after one of the operations on files."""
    steps = count()

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Folder, *arguments: object) -> Any:
            is_now = next(steps) == step
            if is_now and not after:
                raise CrashError
            result: Any = None
            try:
                result = operation(self, *arguments)
            finally:
                if is_now:
                    if hasattr(result, "close"):
                        result.close()
                    raise CrashError
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        for name in OPERATIONS:
            patch.setattr(Folder, name, counted(getattr(Folder, name)))
        yield


class Supplied:
    """An ingress whose supplier brings a file again and again, as soon as it was taken away."""

    FILES = ("one\ntwo\n", "one\ntwo\n", "three\n")

    def __init__(self, folder: Path, after: str) -> None:
        folder.mkdir()
        self.reader = Reader(folder, "{type: lines}", more=f"afterRead: {after}")
        self.supplies = list(self.FILES)
        self.supply()
        self.got: list[str] = []

    def supply(self) -> None:
        """Bring the next file, if the last one was taken away."""
        if self.supplies and not (self.reader.folder / "a").exists():
            self.reader.write("a", self.supplies.pop(0))

    def run(self) -> None:
        """Read all records that are there, as one start of the application does."""
        self.reader.start()
        idle = 0
        while idle < 2:
            before = self.reader.offset
            self.reader.clock.seconds += 20
            self.got += self.reader.values()  # and they are committed
            self.supply()
            idle = idle + 1 if self.reader.offset == before else 0


@pytest.mark.parametrize("after", ["delete", "move"])
@pytest.mark.parametrize("later", [False, True])
def test_a_crash_neither_loses_nor_repeats(tmp_path: Path, after: str, *, later: bool) -> None:
    """A crash at any operation, also if the next file equals the one that was taken away."""
    for step in count():
        supplied = Supplied(tmp_path / str(step), after)
        has_crashed = False
        try:
            with crashing(step, after=later):
                supplied.run()
        except CrashError:
            has_crashed = True
            supplied.supply()
        supplied.run()

        assert supplied.got == "".join(supplied.FILES).split()
        moved = sorted((supplied.reader.folder / "_read").glob("*"))
        assert [file.read_text() for file in moved] == [*supplied.FILES] * (after == "move")
        if not has_crashed:
            break
    assert step > 30


@pytest.mark.parametrize("after", ["delete", "move"])
def test_files_that_others_take_away_are_known_when_they_come_back(
    tmp_path: Path, after: str
) -> None:
    """The source forgets only files that the application has taken away, not those of a lost file system."""
    reader = Reader(tmp_path, "{type: lines}", more=f"afterRead: {after}")
    reader.write("a", "one\n")
    assert reader.values() == ["one"]
    for _ in range(2):
        reader.folder.rename(tmp_path / "away")
        reader.folder.mkdir()
        for _ in range(2):
            reader.start()
            assert reader.read() == []
        reader.folder.rmdir()
        (tmp_path / "away").rename(reader.folder)
        assert reader.values() == []


def test_a_file_that_has_grown_behind_a_bound_stays(tmp_path: Path) -> None:
    """A bounded run does not take away a file with lines that it does not read."""
    reader = Reader(tmp_path, "{type: lines}", more="afterRead: delete")
    reader.write("a", "one\n", age=5)
    reader.write("b", "unfinished")  # so the run looks again
    reader.start()
    reader.source.bound()
    assert reader.values() == ["one"]
    reader.write("a", "one\ntwo\n")
    reader.clock.seconds -= 1.5
    for _ in range(5):
        reader.read()
    reader.start()

    assert reader.values() == ["two"]


def test_what_cannot_be_taken_away_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a warning, and the file is not read again."""
    reader = Reader(tmp_path, "{type: lines}", more="afterRead: delete")
    file = reader.write("a", "one\n")
    assert reader.values() == ["one"]

    def refused(self: Folder, name: str) -> None:
        raise PermissionError(f"{name} may not be deleted")

    monkeypatch.setattr(Folder, "remove", refused)
    reader.clock.seconds += 20
    with caplog.at_level(logging.WARNING):
        assert [reader.read() for _ in range(5)] == [[]] * 5
    reader.start()

    assert reader.read() == []
    [record] = caplog.records
    assert record.message == (
        f"ingress test/in: file {file} was read and cannot be deleted or moved: a may not be deleted; it stays in its folder"
    )


@pytest.mark.parametrize("is_started_again", [False, True])
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_file_that_stays_is_not_read_again_if_only_its_time_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool, is_started_again: bool
) -> None:
    """Whether its removal is refused, or it was touched after its folder was listed."""
    reader = Reader(tmp_path, "{type: lines}", more="afterRead: delete")
    file = reader.write("a", "one\n", age=100)
    assert reader.values() == ["one"]
    facts = Folder.facts

    def refused(self: Folder, name: str) -> None:
        del self, name
        raise PermissionError

    def touching(self: Folder, name: str) -> FileFacts | None:
        os.utime(file, (1, 1))
        return facts(self, name)

    with monkeypatch.context() as patch:
        if is_refused:
            patch.setattr(Folder, "remove", refused)
        else:
            patch.setattr(Folder, "facts", touching)
        reader.clock.seconds += 20
        assert reader.values() == []
    assert file.exists()
    os.utime(file)
    if is_started_again:
        reader.start()

    assert reader.values() == []
    reader.clock.seconds += 20
    assert reader.values() == []
    assert not file.exists()


@pytest.mark.parametrize("former", [0, 1, 2, 3, 300])
def test_moving_a_file_costs_about_the_same_after_many_files_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: int
) -> None:
    """The number that its name gets is the next one, and is not found by trying all numbers."""
    reader = Reader(tmp_path, "{type: lines}", more="afterRead: move")
    moved = reader.folder / "_read"
    moved.mkdir()
    names = ["day.csv", *(f"day.csv.{number}" for number in range(1, former + 1))]
    for name in names[:former]:
        (moved / name).write_text("before")
    reader.write("day.csv", "one\n")
    asked: list[str] = []
    has = Folder.has

    def counted(self: Folder, name: str) -> bool:
        asked.append(name)
        return has(self, name)

    assert reader.values() == ["one"]
    monkeypatch.setattr(Folder, "has", counted)
    reader.clock.seconds += 20
    reader.read()

    assert (moved / names[former]).read_text() == "one\n"
    assert len(list(moved.iterdir())) == former + 1
    assert len([name for name in asked if "_read/" in name]) <= 20
