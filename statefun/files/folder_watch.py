# SPDX-License-Identifier: Apache-2.0
"""Lists folders again and again, and finds the files that are new, have changed, or are missing.

A file that has not changed since the last listing costs one comparison. This process measures by its own
clock for how long a file has stayed unchanged, because the clock of a file server may differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from statefun.components.running import FileFacts, Folder
from statefun.files.file_log import FileState, known_path
from statefun.files.path_identity import identity_of
from statefun.files.places import HIDDEN, Place
from statefun.sdk.errors import ConnectorError

_SEARCH_EVERY = timedelta(hours=1)
"""The time between two searches for known files that are missing from their folders."""


class WaitingClock:
    """A monotonic clock, which no change of the system time affects; tests replace it."""

    def now(self) -> float:
        """Return the time in seconds since a moment that stays the same for the process."""
        return time.monotonic()

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        """Wait for some seconds, or until ``stopped`` is set; return whether it is set."""
        return stopped.wait(seconds)


class ListedFile(NamedTuple):
    """A file of a folder, as the folder was listed."""

    route: str
    folder: Folder
    name: str
    facts: FileFacts
    since: float
    """When the file was first listed with this size and modification time, by the watch's clock."""
    was_cut: bool = False
    """Whether the file has become shorter before all of it was read."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return known_path(self.folder.location, self.name)


class Watch:
    """Watches the files of an ingress, and knows which of them may have content to read.

    Args:
        owner: the ingress as error texts name it.
        places: where the files of each route are, by the topic of the route.
        clock: measures for how long files have stayed unchanged.
    """

    def __init__(self, owner: str, places: Mapping[str, Place], clock: WaitingClock) -> None:
        self._owner = owner
        self._places = places
        self._clock = clock
        self._listed: dict[str, dict[str, FileFacts]] = {route: {} for route in places}
        self._next_search = clock.now()
        self.pending_files: dict[str, ListedFile] = {}
        """The files that may have content to read now, by path, in the order of reading."""
        self.unfinished_files: dict[str, ListedFile] = {}
        """By path, the files of which more may become readable once they stay unchanged for a while."""
        self._missing: dict[str, bool] = {}
        """The paths of missing files, and whether each had content that was not read."""
        self.listed_at = clock.now()
        """When the last listing of the folders began, by the clock."""
        self.troubles: dict[str, str] = {}
        """For each route whose folder is missing or has lost its files, a text that says so."""

    def list_folders(self, states: Mapping[str, FileState], *, may_be_empty: bool) -> bool:
        """List all folders; return whether a file is new, has changed or is missing.

        Args:
            states: the states of known files, by their paths.
            may_be_empty: whether a folder may be empty after all of its files were read, because the
                ingress deletes or moves them.

        Raises:
            ConnectorError: if a file belongs to the paths of two routes.
            OSError: if a folder cannot be listed.
        """
        changed_files: list[ListedFile] = []
        missing_paths: set[str] = set()
        self.listed_at = self._clock.now()
        for route, place in self._places.items():
            folder, before = place.folder, self._listed[route]
            present_files = {
                name: facts
                for name, facts in folder.files().items()
                if not name.startswith(HIDDEN) or place.takes(name)
            }
            if self.troubles.pop(route, None):
                self._next_search = self._clock.now()
            if not present_files and (
                trouble := _mount_problem(place, states, may_be_empty=may_be_empty)
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
            missing_paths |= {
                known_path(location, name) for name in before.keys() - listed_files.keys()
            }
        for path in missing_paths:
            self._missing[path] = self._forget_pending(path) > 0
        for file in changed_files:
            was_cut = self._forget_pending(file.path) > file.facts.size
            self.pending_files[file.path] = file._replace(was_cut=was_cut)
            self._missing.pop(file.path, None)
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
        self._find_missing(states)
        return bool(changed_files or missing_paths)

    def requeue_still_files(self, is_still: Callable[[ListedFile], bool]) -> None:
        """Move files whose end may still be missing back to the pending files, if ``is_still`` finds them unchanged."""
        for path, file in [*self.unfinished_files.items()]:
            if is_still(file):
                self.pending_files[path] = self.unfinished_files.pop(path)

    def readable(self) -> list[ListedFile]:
        """Return the pending files whose folders exist and have not lost all of their files."""
        return [file for file in self.pending_files.values() if file.route not in self.troubles]

    def mark_planned(self, file: ListedFile, *, has_more: bool) -> None:
        """Remove a file from the pending files, because all that can be read of it now is planned.

        Args:
            file: the file.
            has_more: whether more of the file may become readable once it has stayed unchanged for a while.
        """
        self.pending_files.pop(file.path, None)
        if has_more:
            self.unfinished_files[file.path] = file

    def pop_missing(self) -> list[tuple[str, bool]]:
        """Remove the missing files from the watch; return their paths, and whether each had unread content."""
        missing_paths, self._missing = self._missing, {}
        return sorted(missing_paths.items())

    def sizes(self, routes: Iterable[str]) -> dict[str, int]:
        """Return the sizes of all files of some routes, by their paths."""
        return {
            known_path(self._places[route].folder.location, name): facts.size
            for route in routes
            for name, facts in self._listed[route].items()
        }

    def means(self, path: str) -> bool:
        """Return whether a path of the ingress means the file: an earlier run may have had other paths."""
        location, _, name = path.rpartition("/")
        return any(
            identity_of(place.folder.location) == location and place.takes(name)
            for place in self._places.values()
        )

    def _find_missing(self, states: Mapping[str, FileState]) -> None:
        """Find known files that this run has never listed.

        They were deleted between two runs, or no path of the ingress means them any more.
        """
        if self._clock.now() < self._next_search:
            return
        self._next_search = self._clock.now() + _SEARCH_EVERY.total_seconds()
        missing_folders = {
            identity_of(self._places[route].folder.location) for route in self.troubles
        }
        listed_files = self.sizes(self._places)
        for path in states:
            if path not in listed_files and path.rpartition("/")[0] not in missing_folders:
                self._missing.setdefault(path, False)

    def _forget_pending(self, path: str) -> int:
        """Remove a file from the pending and unfinished files.

        Return the size of the file when it was listed; 0 if the file was read to its end.
        """
        unread = self.unfinished_files.pop(path, None) or self.pending_files.pop(path, None)
        return unread.facts.size if unread else 0

    def _check_owner(self, route: str, name: str) -> None:
        place = self._places[route]
        for other, its in self._places.items():
            if other != route and its.folder == place.folder and its.takes(name):
                raise ConnectorError(
                    f"{self._owner}: file {known_path(place.folder.location, name)} belongs to two paths, "
                    f"{route} and {other}; change a path, so that the file belongs to only one"
                )


def _mount_problem(
    place: Place, states: Mapping[str, FileState], *, may_be_empty: bool
) -> str | None:
    """Return why a folder without files is probably not mounted; None if it may be empty."""
    location = identity_of(place.folder.location)
    if not place.folder.exists():
        return f"folder {location} does not exist"
    is_lost = any(
        path.rpartition("/")[0] == location
        and place.takes(path.rpartition("/")[2])
        and not state.is_gone
        and not (may_be_empty and state.is_all)
        for path, state in states.items()
    )
    return f"all files of folder {location} have disappeared at once" if is_lost else None
