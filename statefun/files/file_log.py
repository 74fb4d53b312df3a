# SPDX-License-Identifier: Apache-2.0
"""The file log: stores in the checkpoint which parts of files are read, in one entry per micro-batch.

Every hundredth entry is also a layer: it holds the states of all files that have changed since the previous
layer. A new layer also takes over the content of earlier layers that are not larger. So the state of a
file is written only a few times, however many files there are, and a start reads only a few layers.
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
"""The number of entries from one layer to the next.

Once a layer is written, entries that are older than the previous layer are deleted.
"""


@attrs.frozen
class FileState:
    """How far a file is read."""

    end: int
    """How many bytes of the file are read; for Parquet, how many rows."""
    lines: int
    """How many lines or rows of the file are read."""
    modified: int
    """The modification time that the file had when it was read, in nanoseconds since the epoch."""
    is_all: bool
    """Whether the file was read to its end; it may have become longer since then."""
    size: int
    """What ``digest`` covers, in bytes: the size of the part already read; for Parquet, of the whole file."""
    digest: str
    """A digest of the beginning and the end of the first ``size`` bytes, to notice a replaced file."""
    header: int = 0
    """For CSV, the size of the first line, which names the fields, in bytes; 0 for other formats."""
    is_torn: bool = False
    """Whether the last line of the part already read has no line break."""
    is_gone: bool = False
    """Whether the file is missing from its folder, so that another file may replace it."""
    gone: int = 0
    """When the file was first found missing, in nanoseconds since the epoch; 0 if that is unknown."""


@attrs.frozen
class FileRange:
    """A part of a file that a task reads."""

    route: str
    """The topic of the file's route."""
    folder: str
    name: str
    start: int
    end: int
    """The position in the file at which the part ends, in bytes; for Parquet, in rows."""
    line: int
    """The number of the part's first line or row in the file; the file's first line is 1."""
    first: int
    """The number of the part's first record among all records of the ingress: its offset."""
    count: int
    """How many lines or rows the part has."""
    state: FileState
    """The state of the file after this part is read."""
    problem: str | None = None
    """If the part is one record that cannot be decoded, the reason; else None."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return known_path(self.folder, self.name)


def known_path(folder: str, name: str) -> str:
    """Return the path of a file, given its folder and its name; options of the folder's URI are left out.

    >>> known_path("/data", "a.csv"), known_path("s3://data/in?region=eu-west-1", "a.csv")
    ('/data/a.csv', 's3://data/in/a.csv')
    """
    return f"{identity_of(folder)}/{name}"


@attrs.frozen
class LogEntry:
    """An entry of the file log: what one micro-batch reads, and which files have gone or come back."""

    records: int
    """How many records all micro-batches up to this one have read."""
    ranges: Sequence[FileRange]
    gone: Sequence[str] = ()
    """The paths of known files that were found missing from their folders when the entry was planned."""
    forgotten: Sequence[str] = ()
    """The paths whose states this entry deletes: a file with such a path is read from its beginning."""
    back: Sequence[str] = ()
    """The paths of known files that were missing earlier and are in their folders again."""
    at: int = 0
    """When the entry was planned, in nanoseconds since the epoch."""

    @property
    def is_empty(self) -> bool:
        """Whether the entry changes no state, so that it need not be written."""
        return not (self.ranges or self.gone or self.forgotten or self.back)


class FileLog:
    """The file log of an ingress; it holds the states of all files after one entry, the current one."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._at = -1
        self._newest = -1
        """The number of the newest known entry on disk; -1 if not searched for yet."""
        self._total = 0
        self._states: dict[str, FileState] = {}
        self._changed: set[str] = set()
        """The paths whose states have changed since the last layer."""
        self._layers: list[tuple[int, int]] = []
        """For each layer, the oldest first, its number and how many states it has."""
        self._removals: tuple[int, frozenset[str]] | None = None
        """The number of the newest entry when files were last deleted or moved, and the paths of these files.

        None until the number and the paths are loaded from the checkpoint.
        """

    def has(self, number: int) -> bool:
        """Return whether the log has an entry with this number, such as one from a run that has crashed."""
        if number > self._newest + 1 or self._newest < 0:
            self._newest = number if self._folder.has(_name(number)) else number - 1
        return number <= self._newest

    def read(self, number: int) -> LogEntry:
        """Return the entry with a number.

        Raises:
            FileNotFoundError: if the log has no entry with this number.
            CheckpointError: if the entry is damaged.
        """
        return _entry(self._content(number))

    def write(self, number: int, entry: LogEntry) -> None:
        """Write the entry that follows the current one into the file log, and make it the current one."""
        content = {**attrs.asdict(entry), "ranges": [_encoded_range(each) for each in entry.ranges]}
        self._apply(entry)
        self._at = self._newest = number
        is_layer = number % _LAYER_EVERY == 0
        previous = [
            layer for layer, _ in self._layers
        ]  # a run that starts again may need these layers
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
        """Make an entry the current one; return the states that files have after this entry, by their paths.

        Number 0 stands for the time before the first entry, when no file has a state.
        """
        if self._at != number:
            self._load(number - number % _LAYER_EVERY)
            for each in range(self._at + 1, number + 1):
                self._apply(self.read(each))
            self._at = number
        return self._states

    def advance(self, number: int, entry: LogEntry) -> None:
        """Make an entry the current one and apply it to the states, if it follows the current entry."""
        if self._at == number - 1:
            if number % _LAYER_EVERY == 0:
                self.states(number)  # loads the layer
                return
            self._apply(entry)
            self._at = number

    def store_removals(self, number: int, paths: Iterable[str]) -> None:
        """Store the paths of files before they are deleted or moved, with those that are stored for ``number`` already.

        The entry after entry ``number`` drops the states of these files.
        """
        self._write_removals(number, self.stored_removals(number).union(paths))

    def withdraw_removals(self, number: int, paths: Iterable[str]) -> None:
        """Remove the paths of files that were neither deleted nor moved from the stored ones."""
        self._write_removals(number, self.stored_removals(number).difference(paths))

    def _write_removals(self, number: int, paths: frozenset[str]) -> None:
        content = {"log": number, "paths": sorted(paths)}
        write_framed(self._folder, _LEAVING, json.dumps(content).encode())
        self._removals = number, paths

    def stored_removals(self, number: int) -> frozenset[str]:
        """Return the paths of files that a crashed run may have deleted or moved after entry ``number``.

        Raises:
            CheckpointError: if the file with the paths is damaged.
        """
        if self._removals is None:
            try:
                content = json.loads(read_framed(self._folder, _LEAVING))
                self._removals = content["log"], frozenset(content["paths"])
            except FileNotFoundError:
                self._removals = -1, frozenset()
        at, paths = self._removals
        return paths if at == number else frozenset()

    @property
    def total(self) -> int:
        """How many records all micro-batches up to the current entry have read."""
        return self._total

    def _load(self, number: int) -> None:
        """Load the states that files have after a layer; after entry 0, no file has a state."""
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
        """Make a layer of the states that have changed since the previous layer.

        Returns:
            The states of the layer, and the numbers of the earlier layers that are still needed.
        """
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

    def _apply(self, entry: LogEntry) -> None:
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


def _entry(content: Mapping[str, Any]) -> LogEntry:
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
    return LogEntry(
        content["records"], ranges, gone, forgotten, content.get("back", ()), content.get("at", 0)
    )


def _encoded(state: FileState) -> dict[str, Any]:
    """Return the fields of a state, for JSON; fields that have their default value are left out."""
    return attrs.asdict(state, filter=lambda field, value: value != field.default)


def _encoded_range(range_: FileRange) -> dict[str, Any]:
    return {**attrs.asdict(range_), "state": _encoded(range_.state)}
