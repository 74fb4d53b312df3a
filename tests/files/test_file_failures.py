# SPDX-License-Identifier: Apache-2.0
"""Errors of the file system while records are gathered and become files, at each of its calls."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

import pytest
from file_writer import AT_ONCE, LATER, claimed, connect, files, hidden, marker, names, rows
from typing_extensions import Self

from statefun.components.running import EgressRecord, Marker, UncertainError
from statefun.files import gathered
from statefun.runtime.checkpoint.local_files import LocalFiles

ERRORS = [errno.ENOSPC, errno.EACCES, errno.EIO]
FAILURES = [1, 12, 1]
"""How many calls in a row fail."""
ATTEMPTS = 100


class TornFile:
    """A file that takes only a part of what is written to it, as a full disk does."""

    def __init__(self, file: IO[Any], error: OSError) -> None:
        self._file = file
        self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._file.fileno()

    def write(self, content: bytes) -> None:
        """Write a half of it."""
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        raise self._error


class Disk:
    """Lets calls of the file system fail: some calls in a row, from one of them on.

    Args:
        first: the number of the first call that fails.
        failures: how many calls fail.
        code: the error.
        has_effect: whether a call that fails has taken effect, as if its answer was lost.
    """

    def __init__(self, first: int, failures: int, code: int, *, has_effect: bool) -> None:
        self._first, self._failures = first, failures
        self._code, self._has_effect = code, has_effect
        self._calls = count()
        self.has_failed = False

    def failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that may fail."""

        def attempt(*arguments: Any, **options: Any) -> Any:
            fails = self._is_next_failing()
            if fails and not self._has_effect:
                raise self._error()
            result = call(*arguments, **options)
            if fails:
                if hasattr(result, "close"):
                    result.close()
                raise self._error()
            return result

        return attempt

    def opening(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that opens files, in which writing may fail."""

        def attempt(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            fails = "w" in mode and self._is_next_failing()
            if fails and not self._has_effect:
                raise self._error()
            file = call(path, mode, *arguments, **options)
            return TornFile(file, self._error()) if fails else file

        return attempt

    def _is_next_failing(self) -> bool:
        return self._first <= next(self._calls) < self._first + self._failures

    def _error(self) -> OSError:
        self.has_failed = True
        return OSError(self._code, os.strerror(self._code))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Use this disk for all files that are written."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self.failing(lambda _: None))
            patch.setattr(Path, "open", self.opening(Path.open))
            for owner, called in (
                (Path, ("mkdir", "replace")),
                (LocalFiles, ("facts", "has", "list", "open", "remove")),
            ):
                for name in called:
                    patch.setattr(owner, name, self.failing(getattr(owner, name)))
            yield


class Application:
    """Publishes batches as a lane does, which opens a new connection after each error."""

    def __init__(self, folder: Path, more: str) -> None:
        self.folder, self.more = folder, more
        self.batches: dict[int, list[EgressRecord]] = {
            batch: [*rows(f"{batch}a", f"{batch}b"), *rows(f"{batch}c", topic="t")]
            for batch in range(3)
        }
        self.taken: list[str] = []
        """The names in files that somebody has taken away."""
        self.errors = 0

    def run(self, owner: str, *, gives_up: bool) -> bool:
        """Publish what is missing; return whether that was done.

        Args:
            owner: the run.
            gives_up: whether the run ends at the first error.
        """
        known: Marker | None = None
        is_claimed = False
        for _ in range(ATTEMPTS):
            cluster = connect(self.folder, self.more)
            try:
                known = cluster.open() or known or marker(-1, 0)
                if not is_claimed:
                    known = known._replace(owner=owner)
                    cluster.write([], known)
                    is_claimed = True
                for batch, records in self.batches.items():
                    if batch > known.batch:
                        new = marker(batch, 3, owner)
                        cluster.write(records, new)
                        known = new
                        self.take()
                cluster.tend(is_last=True)
            except UncertainError:
                self.errors += 1
                self.take()
                if gives_up:
                    return False
            else:
                return True
            finally:
                cluster.close()
        raise AssertionError(f"{ATTEMPTS} attempts have failed")

    def take(self) -> None:
        """Take away all files that readers see."""
        for file in files(self.folder):
            self.taken += names(file)
            file.unlink()

    @property
    def expected(self) -> list[str]:
        """The names in all records."""
        return [
            json.loads(record.value or b"")["name"]
            for records in self.batches.values()
            for record in records
        ]


@pytest.mark.parametrize("more", [AT_ONCE, LATER])
def test_records_are_not_written_into_the_folder_of_a_missing_file_system(
    tmp_path: Path, more: str
) -> None:
    """A file system that goes away during a run leaves an empty folder: the lane waits for it.

    An earlier version has left no note in the checkpoint that there was a marker file.
    """
    application = Application(tmp_path, more)
    cluster = claimed(tmp_path, more)
    cluster.write(rows("0a", "0b"), marker(0, 2))
    application.take()
    out, away = tmp_path / "out", tmp_path / "away"
    out.rename(away)
    out.mkdir()
    missing = f"{out}/_statefun/.*/marker, which .* is missing"
    for is_noted in (True, False, False):
        with pytest.raises(UncertainError):
            cluster.write(rows("1a"), marker(1, 1))
        cluster = connect(tmp_path, more)
        if is_noted:
            with pytest.raises(UncertainError, match=missing):
                cluster.open()
            shutil.rmtree(tmp_path / "checkpoint")
            cluster = connect(tmp_path, more)
        assert cluster.open() is None  # the lane goes on from the progress that it knows
        with pytest.raises(UncertainError, match=missing):
            cluster.write(rows("1a"), marker(1, 1))
    assert files(tmp_path) == []
    shutil.rmtree(out)
    away.rename(out)

    cluster = connect(tmp_path, more)
    assert cluster.open() == marker(0, 2)
    cluster.write(rows("1a"), marker(1, 1))
    cluster.tend(is_last=True)
    application.take()
    assert application.taken == ["0a", "0b", "1a"]


@pytest.mark.parametrize(
    ("more", "piece"),
    [(AT_ONCE, 60), (LATER, 1), (LATER, 60), (f"{LATER}, rollSize: 80", 60)],
)
@pytest.mark.parametrize("gives_up", [False, True])
def test_an_error_neither_loses_nor_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, piece: int, *, gives_up: bool
) -> None:
    """At any call of the file system; whether the run tries again, or ends and another one begins."""
    monkeypatch.setattr(gathered, "_PIECE", piece)
    for first in count():
        disks = [
            Disk(first, FAILURES[first % 3], ERRORS[first % 3], has_effect=has_effect)
            for has_effect in (False, True)
        ]
        for number, disk in enumerate(disks):
            application = Application(tmp_path / f"{first}-{number}", more)
            with disk.in_use():
                while not application.run(f"{application.errors}-run", gives_up=gives_up):
                    assert disk.has_failed
            application.take()

            assert sorted(application.taken) == sorted(application.expected)
            assert [each for each in application.taken if "c" not in each] == [
                f"{batch}{each}" for batch in range(3) for each in "ab"
            ]
            assert (application.errors > 0) == disk.has_failed
            assert not any(name.endswith(".tmp") for name in hidden(application.folder))
            assert application.run("last", gives_up=True)
            assert hidden(application.folder) == ["marker"]
            assert files(application.folder) == []
        if not any(disk.has_failed for disk in disks):
            break
    assert first > 30
