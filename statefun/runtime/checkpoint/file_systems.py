# SPDX-License-Identifier: Apache-2.0
"""File systems of pyarrow, by how they replace a file.

A local rename replaces a file in one step, and S3 and Google Cloud Storage show an object when all of
it is there. Others take two steps: pyarrow deletes a file on HDFS before it renames another one to its
name, and empties a blob on Azure before it writes to it. A crash between these steps would lose the
file. So there, the new content gets a second name first, under which it is found when the file itself
is missing.
"""

from __future__ import annotations

import errno
import os
import uuid
from typing import BinaryIO, cast

from pyarrow import fs

from statefun.sdk.errors import ConfigurationError

_REPLACES_IN_ONE_STEP = {"local", "s3", "gcs", "mock"}
"""The names of such file systems in pyarrow; ``mock`` is its model of an object store."""
_NEXT = ".statefun-next"


class CheckpointFiles:
    """Files, by their paths, of a file system that replaces a file in one step."""

    def __init__(self, system: fs.FileSystem) -> None:
        self.system = system

    def list(self, folder: str) -> dict[str, fs.FileInfo]:
        """Return the entries directly inside a folder, by name; empty if the folder does not exist."""
        selector = fs.FileSelector(folder, allow_not_found=True)
        return {info.base_name: info for info in self.system.get_file_info(selector)}

    def info(self, path: str) -> fs.FileInfo:
        """Return the file system's entry of a path, also if no file or folder has it."""
        return self.system.get_file_info(path)

    def has(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        return bool(self.info(path).type != fs.FileType.NotFound)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        return cast("BinaryIO", self.system.open_input_file(path))

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        with self.system.open_output_stream(path) as stream:
            stream.write(content)

    def move(self, path: str, target: str) -> None:
        """Rename a file; raises FileNotFoundError."""
        self.system.create_dir(target.rpartition("/")[0], recursive=True)
        self.system.move(path, target)

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        if self.has(path):
            self.system.delete_file(path)

    def finish_replacing(self, folder: str) -> None:
        """Finish the replacements in a folder that a crash has interrupted."""


class RenamedFiles(CheckpointFiles):
    """Files of a file system that can only rename a file to a name that no other file has.

    A file is replaced in three steps: the new content is complete under the file's second name, the
    file is deleted, and the second name becomes its name. So the content under the second name is valid
    while the file is missing; next to an existing file it is left over from a replacement that did not
    happen. This is no lock: a file may have one writer at a time.
    """

    def list(self, folder: str) -> dict[str, fs.FileInfo]:
        """Return the entries directly inside, each file once, by its own name."""
        entries = super().list(folder)
        for second in filter(_is_next, [*entries]):
            entries.setdefault(_first_name(second), entries.pop(second))
        return entries

    def info(self, path: str) -> fs.FileInfo:
        """Return the file system's entry of a file, under either name."""
        for place in (path, _next(path)):
            entry = super().info(place)
            if entry.type != fs.FileType.NotFound:
                return entry
        return super().info(path)  # the replacement has ended meanwhile

    def open(self, path: str) -> BinaryIO:
        """Open a file, under either name; raises FileNotFoundError."""
        for place in (path, _next(path)):
            try:
                return super().open(place)
            except FileNotFoundError:
                continue
        return super().open(path)  # the replacement has ended meanwhile

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file, in a folder that is created where it is missing."""
        folder, _, name = path.rpartition("/")
        self.system.create_dir(folder, recursive=True)
        written = f"{folder}/{temporary_name(name)}"
        super().write(written, content)
        if self._settle(path):
            self._rename(written, _next(path))
            self.system.delete_file(path)
            written = _next(path)
        self._rename(written, path)

    def move(self, path: str, target: str) -> None:
        """Rename a file; raises FileNotFoundError, also where the system would not."""
        if not self._settle(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._settle(target):
            self.system.delete_file(target)
        super().move(path, target)

    def remove(self, path: str) -> None:
        """Delete a file, under both names."""
        for place in (
            _next(path),
            path,
        ):  # in this order: after a crash, the second name would bring the file back
            if self._exists(place):
                self.system.delete_file(place)

    def finish_replacing(self, folder: str) -> None:
        """Give the files in a folder their own names."""
        for name in filter(_is_next, super().list(folder)):
            self._settle(f"{folder}/{_first_name(name)}")

    def _settle(self, path: str) -> bool:
        """Finish the replacement of a file, or undo it; return whether the file exists."""
        exists, has_next = self._exists(path), self._exists(_next(path))
        if has_next and exists:
            self.system.delete_file(_next(path))
        elif has_next:
            self._rename(_next(path), path)
        return exists or has_next

    def _exists(self, path: str) -> bool:
        return bool(super().info(path).type != fs.FileType.NotFound)

    def _rename(self, path: str, target: str) -> None:
        try:
            self.system.move(path, target)
        except NotImplementedError as error:  # such as Azure without a hierarchical namespace
            raise ConfigurationError(
                f"{target} cannot be written, since its file system does not rename files ({error}); "
                "use another one, or on Azure an account with a hierarchical namespace"
            ) from error


def files_at(uri: str) -> tuple[CheckpointFiles, str]:
    """Return the file system of a URI in pyarrow's form, and the path in it.

    Raises:
        OSError: if the file system cannot be used.
        ValueError: if pyarrow knows no such file system.
    """
    system, path = fs.FileSystem.from_uri(uri)
    return files_of(system), path


def files_of(system: fs.FileSystem) -> CheckpointFiles:
    """Return access to the files of a file system."""
    return (CheckpointFiles if system.type_name in _REPLACES_IN_ONE_STEP else RenamedFiles)(system)


def temporary_name(name: str) -> str:
    """Return a new name for a file that becomes another one when it is complete."""
    return f".{name}.{uuid.uuid4().hex}.tmp"


def _next(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}{_NEXT}"


def _is_next(name: str) -> bool:
    return name.startswith(".") and name.endswith(_NEXT)


def _first_name(second: str) -> str:
    return second[1 : -len(_NEXT)]
