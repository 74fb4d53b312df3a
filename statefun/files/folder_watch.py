# SPDX-License-Identifier: Apache-2.0
"""Looks at folders: which files are new, have changed, or are gone.

What has not changed since the look before costs one comparison. How long a file has been still is
measured by this process alone: the clock of a file server may differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple

from statefun.components.running import FileFacts, Folder
from statefun.files.file_log import FileState, path_of
from statefun.files.path_identity import shown
from statefun.files.places import HIDDEN, Place
from statefun.sdk.errors import ConnectorError

_SWEEP = timedelta(hours=1)
"""Between two looks at the states of all files."""


class Clock:
    """Time that no one sets; tests have their own."""

    def now(self) -> float:
        """Return the seconds since some moment."""
        return time.monotonic()

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        """Wait; return whether the source was stopped meanwhile."""
        return stopped.wait(seconds)


class Found(NamedTuple):
    """A file that was listed."""

    route: str
    folder: Folder
    name: str
    facts: FileFacts
    since: float
    """When it was first seen as it is, by the clock."""
    was_cut: bool = False
    """Whether it was longer when something was still to be read in it."""

    @property
    def path(self) -> str:
        """Its path."""
        return path_of(self.folder.location, self.name)


class Watch:
    """The files of some places.

    Args:
        owner: whose they are, for messages.
        places: by their routes.
        clock: measures how long files are still.
    """

    def __init__(self, owner: str, places: Mapping[str, Place], clock: Clock) -> None:
        self._owner = owner
        self._places = places
        self._clock = clock
        self._listed: dict[str, dict[str, FileFacts]] = {route: {} for route in places}
        self._next_sweep = clock.now()
        self.pending: dict[str, Found] = {}
        """Files in which there may be something to read, in the order of reading."""
        self.waiting: dict[str, Found] = {}
        """Files of which more may be read when they have been still."""
        self._vanished: dict[str, bool] = {}
        """Files that are no longer listed, and whether something was still to be read in them."""
        self.looked = clock.now()
        """When the last look began."""
        self.troubles: dict[str, str] = {}
        """What is the matter with folders, by their routes."""

    def look(self, states: Mapping[str, FileState], *, may_be_empty: bool) -> bool:
        """List all folders; return whether anything has changed.

        Args:
            states: how far files are read.
            may_be_empty: whether files that were read may all be gone: their folder is there.

        Raises:
            ConnectorError: if two paths take one file.
            OSError: if a folder cannot be listed.
        """
        changed: list[Found] = []
        vanished: set[str] = set()
        self.looked = self._clock.now()
        for route, place in self._places.items():
            folder, before = place.folder, self._listed[route]
            every = {
                name: facts for name, facts in folder.files().items() if not name.startswith(HIDDEN)
            }
            if self.troubles.pop(route, None):
                self._next_sweep = self._clock.now()
            if not every and (trouble := _trouble(place, states, may_be_empty=may_be_empty)):
                self.troubles[route] = trouble
                continue
            listed = {name: facts for name, facts in every.items() if place.takes(name)}
            self._listed[route] = listed
            now = self._clock.now()
            for name in [name for name, facts in listed.items() if before.get(name) != facts]:
                changed.append(Found(route, folder, name, listed[name], now))
                self._check_owner(route, name)
            location = folder.location
            vanished |= {path_of(location, name) for name in before.keys() - listed.keys()}
        for path in vanished:
            self._vanished[path] = self._unread_bytes(path) > 0
        for found in changed:
            was_cut = self._unread_bytes(found.path) > found.facts.size
            self.pending[found.path] = found._replace(was_cut=was_cut)
            self._vanished.pop(found.path, None)
        if changed:
            order = {route: number for number, route in enumerate(self._places)}
            self.pending = dict(
                sorted(
                    self.pending.items(),
                    key=lambda item: (
                        order[item[1].route],
                        item[1].facts.modified,
                        item[1].name,
                    ),
                )
            )
        self._sweep(states)
        return bool(changed or vanished)

    def wake(self, is_still: Callable[[Found], bool]) -> None:
        """Let files that have been still be read on."""
        for path, found in [*self.waiting.items()]:
            if is_still(found):
                self.pending[path] = self.waiting.pop(path)

    def readable(self) -> list[tuple[str, Found]]:
        """Return the pending files of folders that are there."""
        return [each for each in self.pending.items() if each[1].route not in self.troubles]

    def examined(self, found: Found, *, has_more: bool) -> None:
        """Take note that all of a file is planned that can be read now."""
        self.pending.pop(found.path, None)
        if has_more:
            self.waiting[found.path] = found

    def take_vanished(self) -> list[tuple[str, bool]]:
        """Return the files that folders have no more, once, and whether they were still to be read."""
        vanished, self._vanished = self._vanished, {}
        return sorted(vanished.items())

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files that were listed, by their paths."""
        return {
            path_of(self._places[route].folder.location, name): facts.size
            for route, listed in self._listed.items()
            for name, facts in listed.items()
        }

    def _sweep(self, states: Mapping[str, FileState]) -> None:
        """Look for states of files that are not listed: those of earlier runs, and forgotten ones."""
        if self._clock.now() < self._next_sweep:
            return
        self._next_sweep = self._clock.now() + _SWEEP.total_seconds()
        missing = {shown(self._places[route].folder.location) for route in self.troubles}
        folders = {shown(place.folder.location) for place in self._places.values()} - missing
        listed = self.sizes()
        for path in states:
            if path not in listed and path.rpartition("/")[0] in folders:
                self._vanished.setdefault(path, False)

    def _unread_bytes(self, path: str) -> int:
        """Let go of a file that has changed; return its former size if something was to be read."""
        unread = self.waiting.pop(path, None) or self.pending.pop(path, None)
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
    """Return why a folder without files is none that is empty."""
    location = shown(place.folder.location)
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
