# SPDX-License-Identifier: Apache-2.0
"""The log of what micro-batches read of files: in the checkpoint, an entry for each micro-batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from statefun.components.running import Folder, read_framed, write_framed

_SNAPSHOT_EVERY = 100
"""Entries between two that have the state of all files; those before the last but one are deleted."""


@attrs.frozen
class FileState:
    """How far a file is read."""

    end: int
    """The bytes that are read; of Parquet, the rows."""
    lines: int
    """The lines or rows that are read."""
    modified: int
    """When it had been changed, in nanoseconds since the epoch."""
    is_all: bool
    """Whether that was all of it then."""
    size: int
    """The bytes that are known of it: those that are read; of Parquet, all."""
    digest: str
    """Of the first and the last of these bytes: so another file in its place is known."""
    header: int = 0
    """The bytes of the first line, which names the fields of CSV."""
    is_torn: bool = False
    """Whether what is read does not end with a line break."""
    is_gone: bool = False
    """Whether it was not there at a look: another file may come in its place."""


@attrs.frozen
class FileRange:
    """A part of a file that a task reads."""

    route: str
    """The path of its route."""
    folder: str
    name: str
    start: int
    end: int
    """Bytes, or rows of Parquet."""
    line: int
    """The number of the first line or row in its file, from 1 on."""
    first: int
    """The number of its first record in the ingress."""
    count: int
    """The lines or rows."""
    state: FileState
    """How far the file is read with it."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return path_of(self.folder, self.name)


def path_of(folder: str, name: str) -> str:
    """Return the path of a file in a folder.

    >>> path_of("/data", "a.csv"), path_of("s3://data/in?region=eu-west-1", "a.csv")
    ('/data/a.csv', 's3://data/in/a.csv')
    """
    return f"{without_query(folder)}/{name}"


def without_query(location: str) -> str:
    """Return the location of a folder without the options of its file system."""
    return location.partition("?")[0] if "://" in location else location


@attrs.frozen
class Entry:
    """What one micro-batch reads."""

    records: int
    """The records of all micro-batches up to this one."""
    ranges: Sequence[FileRange]
    gone: Sequence[str] = ()
    """The paths of files that are no longer there."""
    forgotten: Sequence[str] = ()
    """The paths of files that are read from their beginnings if they are there again."""


class FileLog:
    """The log, and the state of all files after one of its entries."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._at = -1
        self._total = 0
        self._states: dict[str, FileState] = {}

    def has(self, number: int) -> bool:
        """Tell whether there is an entry, which is one of the newest."""
        return self._folder.has(_name(number))

    def read(self, number: int) -> Entry:
        """Return an entry.

        Raises:
            FileNotFoundError: if there is none.
            CheckpointError: if it is damaged.
        """
        content = self._content(number)
        ranges = [
            FileRange(**{**each, "state": FileState(**each["state"])}) for each in content["ranges"]
        ]
        return Entry(content["records"], ranges, content["gone"], content["forgotten"])

    def write(self, number: int, entry: Entry) -> None:
        """Add the entry that follows the present one."""
        content = attrs.asdict(entry)
        if number % _SNAPSHOT_EVERY == 0:
            states = _after(self._states, entry)
            content["states"] = {path: attrs.asdict(state) for path, state in states.items()}
        write_framed(self._folder, _name(number), json.dumps(content).encode())
        if number % _SNAPSHOT_EVERY == 0:
            for name in self._folder.names():
                if name.endswith(_SUFFIX) and name < _name(number - _SNAPSHOT_EVERY):
                    self._folder.remove(name)

    def states(self, number: int) -> Mapping[str, FileState]:
        """Return how far files are read after an entry, by their paths; 0 is before the first one."""
        if self._at != number:
            begin = number - number % _SNAPSHOT_EVERY
            self._states, self._total = {}, 0
            if begin:
                content = self._content(begin)
                found = content["states"].items()
                self._states = {path: FileState(**state) for path, state in found}
                self._total = content["records"]
            for each in range(begin + 1, number + 1):
                self._take(self.read(each))
            self._at = number
        return self._states

    def advance(self, number: int, entry: Entry) -> None:
        """Take the next entry into the states, if they are at the one before."""
        if self._at == number - 1:
            self._take(entry)
            self._at = number

    @property
    def total(self) -> int:
        """The records up to the entry of the states."""
        return self._total

    def _take(self, entry: Entry) -> None:
        self._states, self._total = _after(self._states, entry), entry.records

    def _content(self, number: int) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(read_framed(self._folder, _name(number)))
        return content


_SUFFIX = ".json"


def _name(number: int) -> str:
    return f"{number:012}{_SUFFIX}"


def _after(states: Mapping[str, FileState], entry: Entry) -> dict[str, FileState]:
    """Return the states after an entry."""
    forgotten = set(entry.forgotten)
    after = {path: state for path, state in states.items() if path not in forgotten}
    after |= {path: attrs.evolve(after[path], is_gone=True) for path in entry.gone if path in after}
    return after | {each.path: each.state for each in entry.ranges}
