# SPDX-License-Identifier: Apache-2.0
"""The log of what micro-batches read of files: in the checkpoint, an entry for each micro-batch.

Each hundredth entry is also a layer: the states of the files that have changed since the layer below.
A layer takes in those below that are no larger, so a state is written a few times, however many files
there are, and a start reads a few layers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from statefun.components.running import Folder, read_framed, write_framed
from statefun.files.path_identity import shown
from statefun.files.path_identity import without_login as _without_login

_LAYER_EVERY = 100
"""Entries between two layers; those before the last but one are deleted."""


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
    gone: int = 0
    """When that was, in nanoseconds since the epoch; 0 if it is not known."""


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
    problem: str | None = None
    """Why this is one record that nobody can read."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return path_of(self.folder, self.name)


def path_of(folder: str, name: str) -> str:
    """Return the path of a file in a folder.

    >>> path_of("/data", "a.csv"), path_of("s3://data/in?region=eu-west-1", "a.csv")
    ('/data/a.csv', 's3://data/in/a.csv')
    """
    return f"{shown(folder)}/{name}"


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
    back: Sequence[str] = ()
    """The paths of files that are there again, and had been gone."""
    at: int = 0
    """When it was made, in nanoseconds since the epoch."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be read or noted."""
        return not (self.ranges or self.gone or self.forgotten or self.back)


class FileLog:
    """The log, and the state of all files after one of its entries."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._at = -1
        self._newest = -1
        """The newest entry that is known to be there, or not to be there yet."""
        self._total = 0
        self._states: dict[str, FileState] = {}
        self._changed: set[str] = set()
        """The paths whose states are in no layer."""
        self._layers: list[tuple[int, int]] = []
        """The entries that are layers, the oldest first, and how many states each has."""
        self._leaving: tuple[int, frozenset[str]] | None = None
        """The entry after which files were to be taken away last, and their paths, if known."""

    def has(self, number: int) -> bool:
        """Return whether there is an entry: of the present run's, or of one that has crashed."""
        if number > self._newest + 1 or self._newest < 0:
            self._newest = number if self._folder.has(_name(number)) else number - 1
        return number <= self._newest

    def read(self, number: int) -> Entry:
        """Return an entry.

        Raises:
            FileNotFoundError: if there is none.
            CheckpointError: if it is damaged.
        """
        return _entry(self._content(number))

    def write(self, number: int, entry: Entry) -> None:
        """Add the entry that follows the present one, and advance to it."""
        content = {**attrs.asdict(entry), "ranges": [_encoded_range(each) for each in entry.ranges]}
        self._take(entry)
        self._at = self._newest = number
        is_layer = number % _LAYER_EVERY == 0
        previous = [layer for layer, _ in self._layers]  # a run may go back to them
        if is_layer:
            content["states"], content["layers"] = self._layer(number)
        write_framed(self._folder, _name(number), json.dumps(content).encode())
        if is_layer:
            present = [layer for layer, _ in self._layers]
            needed = {_name(layer) for layer in [*present, *previous]}
            oldest = _name(number - _LAYER_EVERY)
            for name in self._folder.names():
                if name.endswith(_SUFFIX) and name < oldest and name not in needed:
                    self._folder.remove(name)

    def states(self, number: int) -> Mapping[str, FileState]:
        """Return how far files are read after an entry, by their paths; 0 is before the first one."""
        if self._at != number:
            self._load(number - number % _LAYER_EVERY)
            for each in range(self._at + 1, number + 1):
                self._take(self.read(each))
            self._at = number
        return self._states

    def advance(self, number: int, entry: Entry) -> None:
        """Take the next entry into the states, if they are at the one before."""
        if self._at == number - 1:
            if number % _LAYER_EVERY == 0:
                self.states(number)  # which is a layer
                return
            self._take(entry)
            self._at = number

    def note_leaving(self, number: int, paths: Iterable[str]) -> None:
        """Take note of files that are about to be taken away; the entry after this one forgets them."""
        self._leaving = number, frozenset(paths)
        content = {"log": number, "paths": sorted(self._leaving[1])}
        write_framed(self._folder, _LEAVING, json.dumps(content).encode())

    def leaving(self, number: int) -> frozenset[str]:
        """Return the files that a run may have taken away without having added the entry that follows.

        Raises:
            CheckpointError: if the note of them is damaged.
        """
        if self._leaving is None:
            try:
                content = json.loads(read_framed(self._folder, _LEAVING))
                self._leaving = content["log"], frozenset(content["paths"])
            except FileNotFoundError:
                self._leaving = -1, frozenset()
        at, paths = self._leaving
        return paths if at == number else frozenset()

    @property
    def total(self) -> int:
        """The records up to the entry of the states."""
        return self._total

    def _load(self, number: int) -> None:
        """Go back to a layer, or to the beginning."""
        self._states, self._total, self._layers = {}, 0, []
        self._at = number
        self._changed = set()
        if not number:
            return
        content = self._content(number)
        below = content.get("layers", [])
        for layer in [*below, number]:
            states = (self._content(layer) if layer != number else content)["states"]
            self._layers.append((layer, len(states)))
            for path, state in states.items():
                name = _without_login(path)
                if state is None:
                    self._states.pop(name, None)
                else:
                    self._states[name] = FileState(**state)
        self._total = content["records"]

    def _layer(self, number: int) -> tuple[dict[str, Any], list[int]]:
        """Make a layer of what has changed; return its states, and the layers below."""
        changed = self._changed
        while self._layers and self._layers[-1][1] <= len(changed):
            layer, _ = self._layers.pop()
            changed |= {_without_login(path) for path in self._content(layer)["states"]}
        states = {
            path: _encoded(self._states[path]) if path in self._states else None
            for path in sorted(changed)
            if path in self._states or self._layers
        }
        below = [layer for layer, _ in self._layers]
        self._layers.append((number, len(states)))
        self._changed = set()
        return states, below

    def _take(self, entry: Entry) -> None:
        states = self._states
        for path in entry.forgotten:
            states.pop(path, None)
        for path in entry.gone:
            if path in states:
                states[path] = attrs.evolve(states[path], is_gone=True, gone=entry.at)
        for path in entry.back:
            if path in states:  # it may have been taken away at once
                states[path] = attrs.evolve(states[path], is_gone=False, gone=0)
        for each in entry.ranges:
            states[each.path] = each.state
        read = (each.path for each in entry.ranges)
        self._changed.update(entry.forgotten, entry.gone, entry.back, read)
        self._total = entry.records

    def _content(self, number: int) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(read_framed(self._folder, _name(number)))
        return content


_SUFFIX = ".json"
_LEAVING = "leaving"


def _name(number: int) -> str:
    return f"{number:012}{_SUFFIX}"


def _entry(content: Mapping[str, Any]) -> Entry:
    ranges = [
        FileRange(
            **{
                **each,
                # As they were before credentials were left out.
                "route": shown(each["route"]),
                "folder": shown(each["folder"]),
                "state": FileState(**each["state"]),
            }
        )
        for each in content["ranges"]
    ]
    gone = [_without_login(path) for path in content["gone"]]
    forgotten = [_without_login(path) for path in content["forgotten"]]
    return Entry(
        content["records"], ranges, gone, forgotten, content.get("back", ()), content.get("at", 0)
    )


def _encoded(state: FileState) -> dict[str, Any]:
    """Return the fields of a state that are not as usual."""
    return attrs.asdict(state, filter=lambda field, value: value != field.default)


def _encoded_range(range_: FileRange) -> dict[str, Any]:
    return {**attrs.asdict(range_), "state": _encoded(range_.state)}
