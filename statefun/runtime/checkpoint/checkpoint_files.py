# SPDX-License-Identifier: Apache-2.0
"""Access to files by path: the base classes, which a module for each kind of file system implements.

Only the module that a checkpoint needs is imported: to import a library for a remote file system takes longer than a
whole command that reads a local checkpoint.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import BinaryIO

import attrs


@attrs.frozen
class FileFacts:
    """The size of a file, and when it was modified last."""

    size: int
    """The size in bytes."""
    modified: int
    """The time in nanoseconds since the epoch; 0 if the file system does not know it."""


class CheckpointFiles(ABC):
    """Access to the files of a file system, so that a crash never loses a file that is being replaced."""

    @abstractmethod
    def list(self, folder: str) -> dict[str, FileFacts | None]:
        """Return the entries of a folder by name: the facts of files, and None for folders.

        The result is empty if the folder does not exist.
        """

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files in a folder and below it, in bytes, by their paths in the folder."""
        sizes = {}
        for name, facts in self.list(folder).items():
            if facts is not None:
                sizes[name] = facts.size
            else:
                below = self.sizes(f"{folder}/{name}")
                sizes.update({f"{name}/{path}": size for path, size in below.items()})
        return sizes

    @abstractmethod
    def facts(self, path: str) -> FileFacts | None:
        """Return the facts of a file; None if no file has this path."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Return whether a file or folder with this path exists; an object store finds only files."""

    @abstractmethod
    def has_folder(self, path: str) -> bool:
        """Return whether a folder with this path exists."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""

    def read(self, path: str) -> bytes:
        """Return the content of a file, or raise FileNotFoundError."""
        with self.open(path) as file:
            return file.read()

    @abstractmethod
    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""

    @abstractmethod
    def move(self, path: str, target: str) -> None:
        """Rename a file, and create the folder of its new path if it is missing; raises FileNotFoundError."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""

    def remove_several(self, paths: Sequence[str]) -> None:
        """Delete several files, if they exist."""
        for path in paths:
            self.remove(path)

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Delete a folder and everything in it, if it exists."""

    def finish_replacing(self, folder: str) -> None:  # noqa: B027 - most file systems have nothing to finish
        """Finish replacing files in a folder if a crash has interrupted it; do nothing if it cannot be interrupted."""


class StoreFiles(CheckpointFiles):
    """Access to the files of a store that can create a file only if there is none of its name."""

    @abstractmethod
    def create(self, path: str, content: bytes) -> bool:
        """Create a file only if there is none with this path; return whether the file has this content now.

        If the answer to a request is lost, the content of the file shows whether this call has created it. So no two
        callers may create the same content.
        """


def temporary_name(name: str) -> str:
    """Return a unique name for a new file while it is written; the complete file is renamed to ``name``."""
    return f".{name}.{uuid.uuid4().hex}.tmp"


def is_temporary(name: str) -> bool:
    """Return whether a file has a name from :func:`temporary_name`.

    >>> is_temporary(temporary_name("paused.json")), is_temporary("paused.json"), is_temporary(".7.tmp")
    (True, False, False)
    """
    return re.fullmatch(r"\..+\.[0-9a-f]{32}\.tmp", name) is not None
