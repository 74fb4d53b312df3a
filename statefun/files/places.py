# SPDX-License-Identifier: Apache-2.0
"""Resolves the paths of file ingresses: a path means a folder, and some or all files of this folder."""

from __future__ import annotations

from fnmatch import fnmatchcase

import attrs

from statefun.components.running import Folder
from statefun.files.path_identity import identity_of
from statefun.sdk.errors import ConnectorError

HIDDEN = (".", "_")
"""Files whose names begin with these characters are left out: other programs are still writing them."""


@attrs.frozen
class Place:
    """The files that a path means: all files of a folder, files whose names match a pattern, or one file.

    >>> place = Place.of("/data/in/2026-*.csv")
    >>> place.folder.location, place.takes("2026-01.csv"), place.takes("2025-01.csv")
    ('/data/in', True, False)
    """

    folder: Folder
    name: str
    """A pattern for the names of files, or the name of one file."""

    @classmethod
    def of(cls, path: str) -> Place:
        """Return the files that a path means; the path of an existing folder means all files of the folder.

        Raises:
            ConfigurationError: if pyarrow does not know the file system of the path.
            OSError: if the file system does not answer.
        """
        if path.startswith("file:"):
            path = Folder.at(path).location
        location, mark, query = path.partition("?") if "://" in path else (path, "", "")
        parent, _, name = location.rstrip("/").rpartition("/")
        if not _is_pattern(name):
            folder = Folder.at(location + mark + query)
            if folder.exists():
                return cls(folder, "*")
        return cls(Folder.at((parent or "/") + mark + query), name)

    @property
    def exists(self) -> bool:
        """Whether the folder exists and, if the path names one file, whether this file exists, too."""
        return self.folder.exists() and (_is_pattern(self.name) or self.folder.has(self.name))

    def takes(self, name: str) -> bool:
        """Return whether the path means the file with this name in the folder."""
        is_named = fnmatchcase(name, self.name) if _is_pattern(self.name) else name == self.name
        return is_named and not name.startswith(HIDDEN)


def checked_place(owner: str, path: str) -> Place:
    """Return the files that a path of an ingress means; check that the folder or file of the path exists.

    Raises:
        ConfigurationError: if pyarrow does not know the file system of the path.
        ConnectorError: if the folder or file does not exist, or cannot be read.
    """
    name = identity_of(path)
    try:
        place = Place.of(path)
        exists = place.exists
    except OSError as error:
        raise ConnectorError(f"{owner}: path {name} cannot be read: {error}") from None
    if not exists:
        raise ConnectorError(
            f"{owner}: path {name} does not exist; create the folder or file, or correct the path"
        )
    return place


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
