# SPDX-License-Identifier: Apache-2.0
"""Files of folders as records for functions: the driver finds their lines, and tasks read them.

A file may grow by whole lines, and new files may come. What a micro-batch reads is written into the
checkpoint before it is planned, so that it reads the same after a crash.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import BinaryIO, NamedTuple

import attrs
from pyspark.sql import DataFrame

from statefun.components.running import FileFacts, Folder, Offset, Reading
from statefun.files.file_log import Entry, FileLog, FileRange, FileState, path_of
from statefun.files.file_settings import FileFormat, IngressFiles, OnChange
from statefun.files.parsing import changed, check, encode_task, head_of, read_task
from statefun.files.scanning import Part, whole_lines
from statefun.sdk.errors import ConnectorError

logger = logging.getLogger("statefun.ingress")

_LOOK = timedelta(milliseconds=200)
"""Between two looks at folders in which nothing was new."""
_SHARE = 10
"""Looks at large folders take a tenth of the time."""
_QUIET = timedelta(seconds=10)
"""A last line without a line break is whole when its file has not changed for so long."""
_HEAD = 1024
_NO_STATE = FileState(0, 0, 0, is_all=False, size=0, head="", head_size=0)
_HIDDEN = (".", "_")
_MAGIC = b"PAR1"


def read_files(reading: Reading) -> DataFrame:
    """Return the records of an ingress.

    Raises:
        ConnectorError: if there is no folder or file of a path.
    """
    settings: IngressFiles = reading.ingress.settings
    source = FileSource(settings, reading.folder, reading.records_per_batch)
    source.check()
    return reading.planned(source, read_task)


class _Found(NamedTuple):
    route: str
    folder: Folder
    name: str
    facts: FileFacts

    @property
    def path(self) -> str:
        return path_of(self.folder.location, self.name)


class FileSource:
    """Decides what each micro-batch reads of some files.

    Args:
        settings: the files, and what to do when one of them changes.
        folder: of the checkpoint, for the log.
        records_per_batch: how many records a micro-batch takes at most.
    """

    def __init__(self, settings: IngressFiles, folder: Folder, records_per_batch: int) -> None:
        self._settings = settings
        self._log = FileLog(folder)
        self._most = records_per_batch
        self._next_look = 0.0
        self._is_bounded = False
        self._limits: dict[str, int] | None = None
        """The sizes of files when the run was bounded."""
        self._told: set[str] = set()

    def check(self) -> None:
        """Check that all folders are there.

        Raises:
            ConnectorError: if one is not.
        """
        for files in self._settings.files.values():
            folder, pattern = _split(files.path)
            if not folder.exists() or (not _is_pattern(pattern) and not folder.has(pattern)):
                raise ConnectorError(
                    f"{self._settings.owner}: there is no {files.path}; make it, or correct the path"
                )

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
            if not self._is_bounded and time.monotonic() < self._next_look:
                return start
            began = time.monotonic()
            try:
                entry = self._planned(states)
            except OSError as error:
                raise ConnectorError(
                    f"{self._settings.owner}: its files cannot be read: {error}"
                ) from error
            if not entry.ranges and not entry.forgotten:
                took = time.monotonic() - began
                self._next_look = began + max(_LOOK.total_seconds(), _SHARE * took)
                return start
            self._log.write(number + 1, entry)
        self._log.advance(number + 1, entry)
        return {"log": number + 1, "records": entry.records}

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Return the parts of files between two entries of the log."""
        owner, files = self._settings.owner, self._settings.files
        found: list[bytes] = []
        for number in range(start["log"] + 1, end["log"] + 1):
            for part in self._log.read(number).ranges:
                if part.route not in files:
                    raise ConnectorError(
                        f"{owner}: the checkpoint has planned to read {part.route}, which the "
                        "ingress lists no more; list it for one more start"
                    )
                go_on = self._settings.on_change is OnChange.GO_ON
                found.append(encode_task(part, files[part.route], owner, may_change=go_on))
        return found

    def bound(self) -> None:
        """Read no further than what is there now."""
        self._is_bounded = True
        self._limits = {found.path: found.facts.size for found in self._listed()}

    def stop(self) -> None:
        """Have nothing to release."""

    def _listed(self) -> Iterator[_Found]:
        """List all files, the oldest first."""
        for route, files in self._settings.files.items():
            folder, pattern = _split(files.path)
            listed = [
                _Found(route, folder, name, facts)
                for name, facts in folder.files().items()
                if fnmatchcase(name, pattern) and not name.startswith(_HIDDEN)
            ]
            yield from sorted(listed, key=lambda found: (found.facts.modified, found.name))

    def _planned(self, states: Mapping[str, FileState]) -> Entry:
        """Return what the next micro-batch reads."""
        ranges: list[FileRange] = []
        total, left = self._log.total, self._most
        there = set()
        for found in self._listed():
            there.add(found.path)
            state = states.get(found.path, _NO_STATE)
            is_same = (found.facts.size, found.facts.modified) == (state.size, state.modified)
            is_late = self._limits is not None and found.path not in self._limits
            if left <= 0 or (state.is_all and is_same) or is_late:
                continue
            for part in self._parts(found, state, left):
                ranges.append(attrs.evolve(part, first=total))
                total, left = total + part.count, left - part.count
        gone = [] if left <= 0 else [path for path in states if path not in there]
        for path in gone:
            if not states[path].is_all:
                self._change(changed(self._settings.owner, path, "was deleted"))
        return Entry(total, ranges, gone)

    def _parts(self, found: _Found, state: FileState, most: int) -> Iterator[FileRange]:
        """Yield the parts of a file that are not read yet."""
        files = self._settings.files[found.route]
        size = found.facts.size
        if self._limits is not None:
            size = min(size, self._limits.get(found.path, 0))
        try:
            with found.folder.open(found.name) as file:
                state = self._checked(file, found, state)
                if files.format is FileFormat.PARQUET:
                    parts = self._rows_of(file, found, state, size, most)
                else:
                    parts = self._lines_of(file, found, state, size, most)
                head_size = min(size, _HEAD)
                head = head_of(file, head_size)
                lines = state.lines
                for part, header, is_last in list(parts):
                    lines += part.lines
                    after = FileState(
                        part.end,
                        lines,
                        found.facts.modified,
                        is_last,
                        size if files.format is FileFormat.PARQUET else part.end,
                        head,
                        head_size,
                        header,
                    )
                    yield FileRange(
                        found.route,
                        found.folder.location,
                        found.name,
                        part.start,
                        part.end,
                        lines - part.lines + 1,
                        0,
                        part.lines,
                        after,
                    )
        except FileNotFoundError:  # deleted meanwhile, which the next look sees
            return

    def _checked(self, file: BinaryIO, found: _Found, state: FileState) -> FileState:
        """Return how far the file is read: not at all, if another one is in its place.

        Raises:
            ConnectorError: if that is to end the run.
        """
        if state == _NO_STATE:
            is_csv = self._settings.files[found.route].format is FileFormat.CSV
            return attrs.evolve(state, lines=1) if is_csv else state  # its header
        files, owner = self._settings.files[found.route], self._settings.owner
        try:
            check(file, state, found.path, owner)
            if files.format is FileFormat.PARQUET and found.facts.size != state.size:
                raise changed(owner, found.path, "was replaced by another one")
        except ConnectorError as error:
            self._change(error)
            return _NO_STATE
        return state

    def _change(self, error: ConnectorError) -> None:
        """End the run for a file that has changed, or go on as the ingress says.

        Raises:
            ConnectorError: if the run is to end.
        """
        if self._settings.on_change is OnChange.FAIL:
            raise error
        logger.warning("%s; going on", error.message.partition(";")[0])

    def _lines_of(
        self, file: BinaryIO, found: _Found, state: FileState, size: int, most: int
    ) -> Iterator[tuple[Part, int, bool]]:
        """Yield parts of whole lines, the length of a header, and whether a part is the last one."""
        files = self._settings.files[found.route]
        is_csv = files.format is FileFormat.CSV
        age = time.time() - found.facts.modified / 1e9
        takes_rest = self._is_bounded or age > _QUIET.total_seconds()
        start, header = state.end, state.header
        if is_csv and start == 0:
            first = next(whole_lines(file, 0, size, 1, has_quotes=True), None)
            if first is None:
                return
            start = header = first.end
        found_parts = whole_lines(file, start, size, most, has_quotes=is_csv, takes_rest=takes_rest)
        for part in found_parts:
            yield part, header, part.end >= size

    def _rows_of(
        self, file: BinaryIO, found: _Found, state: FileState, size: int, most: int
    ) -> Iterator[tuple[Part, int, bool]]:
        """Yield a part of the rows of a Parquet file, if it is complete."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

        file.seek(max(0, size - len(_MAGIC)))
        if file.read(len(_MAGIC)) != _MAGIC:
            if found.path not in self._told and time.time() - found.facts.modified / 1e9 > (
                _QUIET.total_seconds()
            ):
                self._told.add(found.path)
                logger.warning(
                    "%s: file %s is no whole Parquet file; it is read when it is",
                    self._settings.owner,
                    found.path,
                )
            return
        file.seek(0)
        rows = pq.ParquetFile(file).metadata.num_rows
        end = min(rows, state.end + most)
        if end > state.end:
            yield Part(state.end, end, end - state.end), 0, end == rows


def _split(path: str) -> tuple[Folder, str]:
    """Return the folder of a path, and the pattern for the names of its files."""
    location, mark, query = path.partition("?") if "://" in path else (path, "", "")
    parent, _, name = location.rstrip("/").rpartition("/")
    if _is_pattern(name):
        return Folder.at(parent + mark + query), name
    folder = Folder.at(location + mark + query)
    if folder.exists():
        return folder, "*"
    return Folder.at(parent + mark + query), re.sub(r"([*?\[])", r"[\1]", name)


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
