# SPDX-License-Identifier: Apache-2.0
"""Resolves the paths of file ingresses: a path means a folder, and some or all files of this folder."""

from __future__ import annotations

from fnmatch import fnmatchcase

import attrs

from statefun.components.running import Folder
from statefun.files.path_identity import identity_of
from statefun.sdk.errors import ConnectorError

HIDDEN = (".", "_")
"""Files whose names begin with these characters are left out, as other programs are still writing them.

Those are read whose path, or pattern, begins with such a character, too."""


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
    is_pattern: bool
    """Whether the name is a pattern."""

    @classmethod
    def of(cls, path: str) -> Place:
        """Return the files that a path means; the path of an existing folder means all files of the folder.

        A name with brackets is that of the file or folder if there is one, and else a pattern.

        Raises:
            ConfigurationError: if pyarrow does not know the file system of the path.
            OSError: if the file system does not answer.
        """
        if path.startswith("file:"):
            path = Folder.at(path).location
        location, mark, query = path.partition("?") if "://" in path else (path, "", "")
        parent, _, name = location.rstrip("/").rpartition("/")
        holder = Folder.at((parent or "/") + mark + query)
        is_pattern = any(each in name for each in "*?[")
        if not any(each in name for each in "*?"):
            folder = Folder.at(location + mark + query)
            if folder.exists():
                return cls(folder, "*", is_pattern=True)
            # A browser names a second download report[1].csv, which this name would not match as a pattern.
            is_pattern = is_pattern and not holder.has(name)
        return cls(holder, name, is_pattern)

    @property
    def exists(self) -> bool:
        """Whether the folder exists and, if the path names one file, whether this file exists, too."""
        return self.folder.exists() and (self.is_pattern or self.folder.has(self.name))

    def takes(self, name: str) -> bool:
        """Return whether the path means the file with this name in the folder."""
        is_named = fnmatchcase(name, self.name) if self.is_pattern else name == self.name
        return is_named and (not name.startswith(HIDDEN) or self.name.startswith(name[0]))


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
