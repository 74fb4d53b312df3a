# SPDX-License-Identifier: Apache-2.0
"""The log in the checkpoint that keeps what micro-batches read of files: an entry for each micro-batch.

Each hundredth entry is also a layer: it has the states of the files that have changed since the layer
before. A layer replaces earlier layers that are no larger. So each state is written only a few times,
however many files there are, and a start reads only a few layers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from statefun.components.running import Folder, read_framed, write_framed
from statefun.files.path_identity import identity_of
from statefun.files.path_identity import without_login as _without_login

_LAYER_EVERY = 100
"""The number of entries from one layer to the next; entries before the last but one layer are deleted."""


@attrs.frozen
class FileState:
    """How far a file is read."""

    end: int
    """How much of the file is read, in bytes; of Parquet, in rows."""
    lines: int
    """How many lines or rows are read."""
    modified: int
    """The time of the file's last change when it was read, in nanoseconds since the epoch."""
    is_all: bool
    """Whether the whole file was read then."""
    size: int
    """The size of the known content, in bytes: of the part that is read; of Parquet, of the file."""
    digest: str
    """The digest of the known content's beginning and end: another file has another digest."""
    header: int = 0
    """The size of the first line, which names the fields of CSV, in bytes; 0 for other formats."""
    is_torn: bool = False
    """Whether the part that is read does not end with a line break."""
    is_gone: bool = False
    """Whether a look has not found the file: another file may replace it."""
    gone: int = 0
    """When a look first did not find it, in nanoseconds since the epoch; 0 if it is not known."""


@attrs.frozen
class FileRange:
    """A part of a file that a task reads."""

    route: str
    """The topic of the file's route."""
    folder: str
    name: str
    start: int
    end: int
    """In bytes; of Parquet, in rows."""
    line: int
    """The number of the part's first line or row in the file, from 1 on."""
    first: int
    """The number of the part's first record in the ingress."""
    count: int
    """How many lines or rows the part has."""
    state: FileState
    """How far the file is read after this part."""
    problem: str | None = None
    """Why the part is one record that cannot be decoded; None if it can."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return path_of(self.folder, self.name)


def path_of(folder: str, name: str) -> str:
    """Return the path of a file in a folder.

    >>> path_of("/data", "a.csv"), path_of("s3://data/in?region=eu-west-1", "a.csv")
    ('/data/a.csv', 's3://data/in/a.csv')
    """
    return f"{identity_of(folder)}/{name}"


@attrs.frozen
class Entry:
    """What one micro-batch reads."""

    records: int
    """How many records all micro-batches up to this one have."""
    ranges: Sequence[FileRange]
    gone: Sequence[str] = ()
    """The paths of known files that a look has not found."""
    forgotten: Sequence[str] = ()
    """The paths of files whose states are dropped: a file there is read from its beginning."""
    back: Sequence[str] = ()
    """The paths of files that had been gone, and that a look has found again."""
    at: int = 0
    """When the entry was made, in nanoseconds since the epoch."""

    @property
    def is_empty(self) -> bool:
        """Whether the entry changes no state, so that it need not be written."""
        return not (self.ranges or self.gone or self.forgotten or self.back)


class FileLog:
    """The log, and the state of all files after one of its entries."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._at = -1
        self._newest = -1
        """The newest entry of the log, as far as it was looked for; -1 before the first look."""
        self._total = 0
        self._states: dict[str, FileState] = {}
        self._changed: set[str] = set()
        """The paths whose states have changed since the last layer."""
        self._layers: list[tuple[int, int]] = []
        """The numbers of the layers, the oldest first, and how many states each layer has."""
        self._leaving: tuple[int, frozenset[str]] | None = None
        """The entry after which files were last taken away, and their paths; None if not read yet."""

    def has(self, number: int) -> bool:
        """Return whether the log has an entry, of this run or of one that has crashed."""
        if number > self._newest + 1 or self._newest < 0:
            self._newest = number if self._folder.has(_name(number)) else number - 1
        return number <= self._newest

    def read(self, number: int) -> Entry:
        """Return an entry.

        Raises:
            FileNotFoundError: if the log has no such entry.
            CheckpointError: if the entry is damaged.
        """
        return _entry(self._content(number))

    def write(self, number: int, entry: Entry) -> None:
        """Add the entry that follows the current one, and make it the current one."""
        content = {**attrs.asdict(entry), "ranges": [_encoded_range(each) for each in entry.ranges]}
        self._apply(entry)
        self._at = self._newest = number
        is_layer = number % _LAYER_EVERY == 0
        previous = [layer for layer, _ in self._layers]  # a restarted run may need them
        if is_layer:
            content["states"], content["layers"] = self._layer(number)
        write_framed(self._folder, _name(number), json.dumps(content).encode())
        if is_layer:
            current = [layer for layer, _ in self._layers]
            needed = {_name(layer) for layer in [*current, *previous]}
            oldest = _name(number - _LAYER_EVERY)
            for name in self._folder.names():
                if name.endswith(_SUFFIX) and name < oldest and name not in needed:
                    self._folder.remove(name)

    def states(self, number: int) -> Mapping[str, FileState]:
        """Return how far files are read after an entry, by their paths; entry 0 is before the first one."""
        if self._at != number:
            self._load(number - number % _LAYER_EVERY)
            for each in range(self._at + 1, number + 1):
                self._apply(self.read(each))
            self._at = number
        return self._states

    def advance(self, number: int, entry: Entry) -> None:
        """Apply an entry to the states, if the entry before is the current one."""
        if self._at == number - 1:
            if number % _LAYER_EVERY == 0:
                self.states(number)  # loads the layer
                return
            self._apply(entry)
            self._at = number

    def note_leaving(self, number: int, paths: Iterable[str]) -> None:
        """Store the paths of files that will now be taken away; the entry after this one forgets them."""
        self._leaving = number, frozenset(paths)
        content = {"log": number, "paths": sorted(self._leaving[1])}
        write_framed(self._folder, _LEAVING, json.dumps(content).encode())

    def leaving(self, number: int) -> frozenset[str]:
        """Return the paths of files that a run may have taken away after an entry, before a crash.

        Raises:
            CheckpointError: if the file with the paths is damaged.
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
        """How many records all micro-batches up to the current entry have."""
        return self._total

    def _load(self, number: int) -> None:
        """Load the states of a layer; entry 0 has no states."""
        self._states, self._total, self._layers = {}, 0, []
        self._at = number
        self._changed = set()
        if not number:
            return
        content = self._content(number)
        earlier_layers = content.get("layers", [])
        for layer in [*earlier_layers, number]:
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
        """Make a layer from the changed states; return its states, and the layers before it."""
        changed_paths = self._changed
        while self._layers and self._layers[-1][1] <= len(changed_paths):
            layer, _ = self._layers.pop()
            changed_paths |= {_without_login(path) for path in self._content(layer)["states"]}
        states = {
            path: _encoded(self._states[path]) if path in self._states else None
            for path in sorted(changed_paths)
            if path in self._states or self._layers
        }
        earlier_layers = [layer for layer, _ in self._layers]
        self._layers.append((number, len(states)))
        self._changed = set()
        return states, earlier_layers

    def _apply(self, entry: Entry) -> None:
        states = self._states
        for path in entry.forgotten:
            states.pop(path, None)
        for path in entry.gone:
            if path in states:
                states[path] = attrs.evolve(states[path], is_gone=True, gone=entry.at)
        for path in entry.back:
            if path in states:  # the same entry may forget it, if the file was taken away at once
                states[path] = attrs.evolve(states[path], is_gone=False, gone=0)
        self._changed.update(entry.forgotten, entry.gone, entry.back)
        for each in entry.ranges:
            path = each.path  # one string for both
            states[path] = each.state
            self._changed.add(path)
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
                # Older logs may have paths with credentials.
                "route": identity_of(each["route"]),
                "folder": identity_of(each["folder"]),
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
    """Return the fields of a state that differ from their defaults."""
    return attrs.asdict(state, filter=lambda field, value: value != field.default)


def _encoded_range(range_: FileRange) -> dict[str, Any]:
    return {**attrs.asdict(range_), "state": _encoded(range_.state)}
