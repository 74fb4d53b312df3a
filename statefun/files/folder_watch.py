# SPDX-License-Identifier: Apache-2.0
"""Looks at folders: which files are new, have changed, or have vanished.

A file that has not changed since the last look costs one comparison. This process measures how long a
file has not changed by its own clock alone: the clock of a file server may differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple

from statefun.components.running import FileFacts, Folder
from statefun.files.file_log import FileState, path_of
from statefun.files.path_identity import identity_of
from statefun.files.places import HIDDEN, Place
from statefun.sdk.errors import ConnectorError

_SWEEP = timedelta(hours=1)
"""The time between two searches for states whose files are not listed."""


class Clock:
    """A clock that nobody sets; tests have clocks of their own."""

    def now(self) -> float:
        """Return the seconds since a fixed moment."""
        return time.monotonic()

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        """Wait for some seconds, or until the source is stopped; return whether it is stopped."""
        return stopped.wait(seconds)


class ListedFile(NamedTuple):
    """A file that a look has listed."""

    route: str
    folder: Folder
    name: str
    facts: FileFacts
    since: float
    """When a look has first listed the file with these facts, by the clock."""
    was_cut: bool = False
    """Whether the file was longer when a part of it was still to be read."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return path_of(self.folder.location, self.name)


class Watch:
    """The files of some places, and which of them may have something to read.

    Args:
        owner: the ingress, for messages.
        places: the places, by their routes.
        clock: measures how long files have not changed.
    """

    def __init__(self, owner: str, places: Mapping[str, Place], clock: Clock) -> None:
        self._owner = owner
        self._places = places
        self._clock = clock
        self._listed: dict[str, dict[str, FileFacts]] = {route: {} for route in places}
        self._next_sweep = clock.now()
        self.pending_files: dict[str, ListedFile] = {}
        """The files that may have something to read, by path, in the order of reading."""
        self.unfinished_files: dict[str, ListedFile] = {}
        """The files of which more may be read once they have not changed for a while, by path."""
        self._vanished: dict[str, bool] = {}
        """The paths of files that are no longer listed, and whether a part was still to be read."""
        self.looked = clock.now()
        """When the last look began, by the clock."""
        self.troubles: dict[str, str] = {}
        """Why folders are not read now, by their routes."""

    def look(self, states: Mapping[str, FileState], *, may_be_empty: bool) -> bool:
        """List all folders; return whether anything has changed.

        Args:
            states: how far files are read.
            may_be_empty: whether a folder may have lost all of its files, if they were read.

        Raises:
            ConnectorError: if a file belongs to two paths.
            OSError: if a folder cannot be listed.
        """
        changed_files: list[ListedFile] = []
        vanished_paths: set[str] = set()
        self.looked = self._clock.now()
        for route, place in self._places.items():
            folder, before = place.folder, self._listed[route]
            present_files = {
                name: facts for name, facts in folder.files().items() if not name.startswith(HIDDEN)
            }
            if self.troubles.pop(route, None):
                self._next_sweep = self._clock.now()
            if not present_files and (
                trouble := _trouble(place, states, may_be_empty=may_be_empty)
            ):
                self.troubles[route] = trouble
                continue
            listed_files = {
                name: facts for name, facts in present_files.items() if place.takes(name)
            }
            self._listed[route] = listed_files
            now = self._clock.now()
            for name in [name for name, facts in listed_files.items() if before.get(name) != facts]:
                changed_files.append(ListedFile(route, folder, name, listed_files[name], now))
                self._check_owner(route, name)
            location = folder.location
            vanished_paths |= {
                path_of(location, name) for name in before.keys() - listed_files.keys()
            }
        for path in vanished_paths:
            self._vanished[path] = self._unread_bytes(path) > 0
        for file in changed_files:
            was_cut = self._unread_bytes(file.path) > file.facts.size
            self.pending_files[file.path] = file._replace(was_cut=was_cut)
            self._vanished.pop(file.path, None)
        if changed_files:
            order = {route: number for number, route in enumerate(self._places)}
            self.pending_files = dict(
                sorted(
                    self.pending_files.items(),
                    key=lambda item: (
                        order[item[1].route],
                        item[1].facts.modified,
                        item[1].name,
                    ),
                )
            )
        self._sweep(states)
        return bool(changed_files or vanished_paths)

    def wake(self, is_still: Callable[[ListedFile], bool]) -> None:
        """Make files pending again that wait and have not changed for long enough."""
        for path, file in [*self.unfinished_files.items()]:
            if is_still(file):
                self.pending_files[path] = self.unfinished_files.pop(path)

    def readable(self) -> list[ListedFile]:
        """Return the pending files whose folders are not missing."""
        return [file for file in self.pending_files.values() if file.route not in self.troubles]

    def mark_planned(self, file: ListedFile, *, has_more: bool) -> None:
        """Remove a file from the pending ones: all of it is planned that can be read now."""
        self.pending_files.pop(file.path, None)
        if has_more:
            self.unfinished_files[file.path] = file

    def take_vanished(self) -> list[tuple[str, bool]]:
        """Return the paths of vanished files, once, and whether a part of each was still to be read."""
        vanished_paths, self._vanished = self._vanished, {}
        return sorted(vanished_paths.items())

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all listed files, by their paths."""
        return {
            path_of(self._places[route].folder.location, name): facts.size
            for route, listed_files in self._listed.items()
            for name, facts in listed_files.items()
        }

    def _sweep(self, states: Mapping[str, FileState]) -> None:
        """Find states whose files are not listed, such as files that vanished between two runs."""
        if self._clock.now() < self._next_sweep:
            return
        self._next_sweep = self._clock.now() + _SWEEP.total_seconds()
        missing_folders = {
            identity_of(self._places[route].folder.location) for route in self.troubles
        }
        folders = {
            identity_of(place.folder.location) for place in self._places.values()
        } - missing_folders
        listed_files = self.sizes()
        for path in states:
            if path not in listed_files and path.rpartition("/")[0] in folders:
                self._vanished.setdefault(path, False)

    def _unread_bytes(self, path: str) -> int:
        """Stop planning a file that has changed; return its former size if a part was still to be read."""
        unread = self.unfinished_files.pop(path, None) or self.pending_files.pop(path, None)
        return unread.facts.size if unread else 0

    def _check_owner(self, route: str, name: str) -> None:
        place = self._places[route]
        for other, its in self._places.items():
            if other != route and its.folder == place.folder and its.takes(name):
                raise ConnectorError(
                    f"{self._owner}: file {path_of(place.folder.location, name)} is one of "
                    f"{route} and of {other}; let only one of them take it"
                )


def _trouble(place: Place, states: Mapping[str, FileState], *, may_be_empty: bool) -> str | None:
    """Return why a folder without files is not taken for an empty one; None if it is."""
    location = identity_of(place.folder.location)
    if not place.folder.exists():
        return f"folder {location} is not there"
    is_lost = any(
        path.rpartition("/")[0] == location
        and place.takes(path.rpartition("/")[2])
        and not state.is_gone
        and not (may_be_empty and state.is_all)
        for path, state in states.items()
    )
    return f"all files of folder {location} are gone at once" if is_lost else None
