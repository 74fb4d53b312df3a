# SPDX-License-Identifier: Apache-2.0
"""Files of folders as records for functions: the driver finds their lines, and tasks read them.

A file may grow by whole lines, and new files may come. What a micro-batch reads is written into the
checkpoint before it is planned, so that it reads the same after a crash.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import BinaryIO, NamedTuple

import attrs
from pyspark.sql import DataFrame

from statefun.components.running import FileFacts, Folder, Offset, Reading
from statefun.files.file_log import Entry, FileLog, FileRange, FileState, path_of, without_query
from statefun.files.file_settings import FileFormat, Files, IngressFiles, OnChange
from statefun.files.parsing import change_of, changed, digest_of, encode_task, read_task
from statefun.files.parts import Piece, lines_of, rows_of
from statefun.files.places import checked_place
from statefun.files.scanning import TooLongError
from statefun.sdk.errors import ConnectorError

logger = logging.getLogger("statefun.ingress")

_LOOK = timedelta(milliseconds=200)
"""Between two looks at folders in which nothing was new."""
_LONGEST_LOOK = timedelta(seconds=30)
_SHARE = 10
"""Looks at large folders take a tenth of the time, up to the limit above."""
_QUIET = timedelta(seconds=10)
"""A last line without a line break is whole when its file has not changed for so long."""
_QUIET_BOUNDED = timedelta(seconds=1)
"""The same in a run that reads what is there."""
_KNOWN_FOR = timedelta(days=7)
"""A file that comes back is known if it has not been older than that."""
_NO_STATE = FileState(0, 0, 0, is_all=False, size=0, digest="")


def read_files(reading: Reading) -> DataFrame:
    """Return the records of an ingress.

    Raises:
        ConnectorError: if there is no folder or file of a path.
    """
    settings: IngressFiles = reading.ingress.settings
    source = FileSource(settings, reading.folder, reading.records_per_batch)
    return reading.planned(source, read_task)


class _Found(NamedTuple):
    route: str
    folder: Folder
    name: str
    facts: FileFacts

    @property
    def path(self) -> str:
        return path_of(self.folder.location, self.name)

    @property
    def age(self) -> timedelta:
        """How long ago it was changed; zero if that is not known."""
        return timedelta(seconds=time.time() - (self.facts.modified or time.time_ns()) / 1e9)


class FileSource:
    """Decides what each micro-batch reads of some files.

    Args:
        settings: the files, and what to do when one of them changes.
        folder: of the checkpoint, for the log.
        records_per_batch: how many records a micro-batch takes at most.

    Raises:
        ConfigurationError: if pyarrow knows no file system of a path.
        ConnectorError: if there is no folder or file of a path.
    """

    def __init__(self, settings: IngressFiles, folder: Folder, records_per_batch: int) -> None:
        self._settings = settings
        # Once: a folder that goes away for a while is still one.
        self._places = {
            route: checked_place(settings.owner, files.path)
            for route, files in settings.files.items()
        }
        self._log = FileLog(folder)
        self._most = records_per_batch
        self._next_look = 0.0
        self._limits: dict[str, int] | None = None
        """The sizes of files when the run was bounded."""
        self._told: set[str] = set()
        self._seen: dict[str, tuple[FileFacts, bool]] = {}
        """Files in which there was nothing to read, and whether there may be after a while."""

    def initial_offset(self) -> Offset:
        """Begin before the first entry of the log."""
        return {"log": 0, "records": 0}

    def latest_offset(self, start: Offset) -> Offset:
        """Return the next entry of the log, once there is something to read."""
        number = start["log"]
        states = self._log.states(number)
        if self._log.has(number + 1):  # planned by a run that has crashed
            entry = self._log.read(number + 1)
        else:
            if self._limits is None and time.monotonic() < self._next_look:
                return start
            began = time.monotonic()
            try:
                entry = self._planned(states)
            except OSError as error:
                raise ConnectorError(
                    f"{self._settings.owner}: its files cannot be read: {error}"
                ) from error
            if not (entry.ranges or entry.gone or entry.forgotten):
                wait = max(_LOOK.total_seconds(), _SHARE * (time.monotonic() - began))
                self._next_look = began + min(wait, _LONGEST_LOOK.total_seconds())
                return start
            self._log.write(number + 1, entry)
        self._log.advance(number + 1, entry)
        return {"log": number + 1, "records": entry.records}

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Return the parts of files between two entries of the log."""
        owner, files = self._settings.owner, self._settings.files
        may_change = self._settings.on_change is OnChange.GO_ON
        found: list[bytes] = []
        for number in range(start["log"] + 1, end["log"] + 1):
            for part in self._log.read(number).ranges:
                if part.route not in files:
                    raise ConnectorError(
                        f"{owner}: the checkpoint has planned to read {part.route}, which the "
                        "ingress lists no more; list it for one more start"
                    )
                found.append(encode_task(part, files[part.route], owner, may_change=may_change))
        return found

    def bound(self) -> None:
        """Read no further than what is there now."""
        self._limits = {found.path: found.facts.size for found in self._listed()[0]}

    def stop(self) -> None:
        """Have nothing to release."""

    def _listed(self) -> tuple[list[_Found], set[str]]:
        """List all files, the oldest of each path first; return the missing folders as well.

        Raises:
            ConnectorError: if two paths take one file.
        """
        every: dict[str, _Found] = {}
        missing = set()
        for route, place in self._places.items():
            folder = place.folder
            if not folder.exists():
                missing.add(without_query(folder.location))
                self._tell(f"folder {folder.location} is not there", "it is waited for")
            listed = [
                _Found(route, folder, name, facts)
                for name, facts in folder.files().items()
                if place.takes(name)
            ]
            for found in sorted(listed, key=lambda found: (found.facts.modified, found.name)):
                other = every.setdefault(found.path, found)
                if other is not found:
                    raise ConnectorError(
                        f"{self._settings.owner}: file {found.path} is one of {other.route} and of "
                        f"{route}; let only one of them take it"
                    )
        return list(every.values()), missing

    def _planned(self, states: Mapping[str, FileState]) -> Entry:
        """Return what the next micro-batch reads."""
        listed, missing = self._listed()
        ranges: list[FileRange] = []
        forgotten: list[str] = []
        total = self._log.total
        for found in listed:
            left = self._most - (total - self._log.total)
            state = states.get(found.path)
            if left <= 0 or self._has_nothing(found, state):
                continue
            parts, is_other = self._parts(found, state, left)
            if is_other:
                forgotten.append(found.path)
            for part in parts:
                ranges.append(attrs.evolve(part, first=total))
                total += part.count
        there = {found.path for found in listed}
        folders = {
            without_query(place.folder.location) for place in self._places.values()
        } - missing
        gone: list[str] = []
        for path, state in states.items():
            if path in there or path.rpartition("/")[0] not in folders:
                continue
            if not state.is_gone:
                if not state.is_all:
                    self._change(path, "was deleted")
                gone.append(path)
            elif time.time_ns() - state.modified > _KNOWN_FOR.total_seconds() * 1e9:
                forgotten.append(path)
        return Entry(total, ranges, gone, forgotten)

    def _has_nothing(self, found: _Found, state: FileState | None) -> bool:
        """Tell, without opening a file, whether there is nothing new in it."""
        facts = found.facts
        if self._limits is not None and found.path not in self._limits:
            return True
        is_read = state is not None and state.is_all and not state.is_gone
        if (
            state is not None
            and is_read
            and (facts.size, facts.modified)
            == (
                state.size,
                state.modified,
            )
        ):
            return True
        before = self._seen.get(found.path)
        if before is None or before[0] != facts:
            return False
        return not (before[1] and found.age > self._quiet)

    @property
    def _quiet(self) -> timedelta:
        return _QUIET if self._limits is None else _QUIET_BOUNDED

    def _parts(
        self, found: _Found, state: FileState | None, most: int
    ) -> tuple[list[FileRange], bool]:
        """Return the parts of a file that are not read yet, and whether it is another file."""
        files = self._settings.files[found.route]
        is_other = False
        try:
            with found.folder.open(found.name) as file:
                if state is not None and (what := self._change_of(file, found, state, files)):
                    if not state.is_gone:
                        self._change(found.path, what)
                    state, is_other = None, True
                pieces = self._pieces(file, found, state or _NO_STATE, most)
                rest = found.facts.size > (pieces[-1].end if pieces else (state or _NO_STATE).end)
                is_parquet = files.format is FileFormat.PARQUET
                if not pieces:
                    self._seen[found.path] = (found.facts, rest and not is_parquet)
                return list(_ranges(file, found, state or _NO_STATE, pieces, files)), is_other
        except FileNotFoundError:  # deleted meanwhile, which the next look sees
            return [], is_other
        except TooLongError as error:
            raise ConnectorError(
                f"{self._settings.owner}: file {found.path} has {error}; correct the file"
            ) from None

    def _pieces(self, file: BinaryIO, found: _Found, state: FileState, most: int) -> list[Piece]:
        files = self._settings.files[found.route]
        size = found.facts.size
        if self._limits is not None:
            size = min(size, self._limits[found.path])
        if files.format is FileFormat.PARQUET:
            pieces = list(rows_of(file, state, size, most))
            if not pieces and not state.is_all and found.age > self._quiet:
                self._tell(f"file {found.path} is no whole Parquet file", "it is read when it is")
            return pieces
        if state.is_torn and size > state.end:
            file.seek(state.end)
            if file.read(1) not in {b"\n", b"\r"}:
                text = f"file {found.path} has gone on in the last line that was read"
                self._tell(text, "the rest of it is read as another one")
        delimiter = files.delimiter if files.format is FileFormat.CSV else None
        takes_rest = found.age > self._quiet and size == found.facts.size
        return list(lines_of(file, state, size, most, delimiter, takes_rest=takes_rest))

    def _change_of(
        self, file: BinaryIO, found: _Found, state: FileState, files: Files
    ) -> str | None:
        what = change_of(file, state)
        is_larger = found.facts.size != state.size
        if what is None and files.format is FileFormat.PARQUET and is_larger:
            what = "was replaced by another one"
        return what

    def _change(self, path: str, what: str) -> None:
        """End the run for a file that has changed, or go on as the ingress says.

        Raises:
            ConnectorError: if the run is to end.
        """
        error = changed(self._settings.owner, path, what)
        if self._settings.on_change is OnChange.FAIL:
            raise error
        logger.warning("%s; going on", error.message.partition(";")[0])

    def _tell(self, text: str, what_happens: str) -> None:
        if text not in self._told:
            self._told.add(text)
            logger.warning("%s: %s; %s", self._settings.owner, text, what_happens)


def _ranges(
    file: BinaryIO, found: _Found, state: FileState, pieces: list[Piece], files: Files
) -> Iterator[FileRange]:
    """Yield the parts of a file, each with how far the file is read behind it."""
    lines = state.lines or int(files.format is FileFormat.CSV)  # its header
    for piece in pieces:
        size = found.facts.size if files.format is FileFormat.PARQUET else piece.end
        lines += piece.lines
        after = FileState(
            piece.end,
            lines,
            found.facts.modified,
            piece.is_last,
            size,
            digest_of(file, size),
            piece.header,
            piece.is_torn,
        )
        line = lines - piece.lines + 1
        location = found.folder.location
        yield FileRange(
            found.route, location, found.name, piece.start, piece.end, line, 0, piece.lines, after
        )
