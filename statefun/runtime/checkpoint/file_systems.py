# SPDX-License-Identifier: Apache-2.0
"""Access to files of other file systems through pyarrow, so that a crash never loses a file that is being replaced.

Google Cloud Storage shows a new object only when it is complete. Other file systems take two steps: pyarrow empties a blob
on Azure before it writes to it. A crash between these steps would lose the file. So on such file systems, the new content is
written under a second name first, and readers use the second name if the file itself is missing.
"""

from __future__ import annotations

import errno
import os
from typing import BinaryIO, cast

from pyarrow import fs

from statefun.runtime.checkpoint.checkpoint_files import CheckpointFiles, FileFacts, temporary_name
from statefun.sdk.errors import ConfigurationError

_REPLACES_IN_ONE_STEP = {"local", "s3", "gcs", "mock"}
"""The names that pyarrow gives file systems that replace a file in one step; ``mock`` is its model of an
object store."""
_NEXT = ".statefun-next"


class ArrowFiles(CheckpointFiles):
    """Access to the files, by path, of a file system that replaces a file in one step."""

    def __init__(self, system: fs.FileSystem) -> None:
        self.system = system

    def list(self, folder: str) -> dict[str, FileFacts | None]:
        """Return the entries of a folder by name: the facts of files, and None for folders."""
        selector = fs.FileSelector(folder, allow_not_found=True)
        return {info.base_name: _facts(info) for info in self.system.get_file_info(selector)}

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files in a folder and below it, in bytes, by their paths in the folder."""
        selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
        return {
            info.path.removeprefix(folder).lstrip("/"): info.size
            for info in self.system.get_file_info(selector)
            if info.type == fs.FileType.File
        }

    def facts(self, path: str) -> FileFacts | None:
        """Return the facts of a file; None if no file has this path."""
        return _facts(self._info(path))

    def has(self, path: str) -> bool:
        """Return whether a file or folder with this path exists."""
        return bool(self._info(path).type != fs.FileType.NotFound)

    def has_folder(self, path: str) -> bool:
        """Return whether a folder with this path exists."""
        return bool(self._info(path).type == fs.FileType.Directory)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        return cast("BinaryIO", self.system.open_input_file(path))

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file."""
        with self.system.open_output_stream(path) as stream:
            stream.write(content)

    def move(self, path: str, target: str) -> None:
        """Rename a file, and create the folder of its new path if it is missing; raises FileNotFoundError."""
        self.system.create_dir(target.rpartition("/")[0], recursive=True)
        self.system.move(path, target)

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        if self.has(path):
            self.system.delete_file(path)

    def remove_folder(self, path: str) -> None:
        """Delete a folder and everything in it, if it exists."""
        if self.has(path):
            self.system.delete_dir(path)

    def _info(self, path: str) -> fs.FileInfo:
        """Return pyarrow's entry for a path; its type is NotFound if no file or folder has this path."""
        return self.system.get_file_info(path)


class RenamedFiles(ArrowFiles):
    """Access to the files of a file system that can rename a file only to a name that no other file has.

    A file is replaced in three steps: the new content is written completely under a second name, the file is
    deleted, and the file with the second name is renamed to the file's own name. If only the second
    name exists, readers use the content under the second name; if both names exist, the content under the
    second name is left over from a replacement that did not happen. This is no lock: at most one process may
    write a file at a time.
    """

    def list(self, folder: str) -> dict[str, FileFacts | None]:
        """Return the files and folders directly inside a folder, by their own names."""
        entries = super().list(folder)
        for second in filter(_is_next, [*entries]):
            entries.setdefault(_first_name(second), entries.pop(second))
        return entries

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files in a folder and below it, by the paths with the files' own names."""
        sizes = super().sizes(folder)
        for path in [*sizes]:
            parent, slash, name = path.rpartition("/")
            if _is_next(name):
                sizes.setdefault(f"{parent}{slash}{_first_name(name)}", sizes.pop(path))
        return sizes

    def open(self, path: str) -> BinaryIO:
        """Open a file under its own name, or under its second name if a replacement was interrupted.

        Raises:
            FileNotFoundError: if it has neither name.
        """
        for place in (path, _next(path)):
            try:
                return super().open(place)
            except FileNotFoundError:
                continue
        return super().open(path)  # the replacement has ended meanwhile

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file; create its folder if it is missing."""
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
        """Rename a file; raises FileNotFoundError, also if the file system itself would not raise it."""
        if not self._settle(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._settle(target):
            self.system.delete_file(target)
        super().move(path, target)

    def remove(self, path: str) -> None:
        """Delete a file under its own name and under its second name."""
        for place in (
            _next(path),
            path,
        ):  # in this order: after a crash, the second name would bring the file back
            if self._exists(place):
                self.system.delete_file(place)

    def finish_replacing(self, folder: str) -> None:
        """Give files in a folder their own names if a crash has left them with only their second names."""
        for name in filter(_is_next, super().list(folder)):
            self._settle(f"{folder}/{_first_name(name)}")

    def _settle(self, path: str) -> bool:
        """Finish or undo a replacement of a file that a crash has interrupted; return whether the file exists.

        The replacement is undone if the file still has its old content: the content under the second name is
        deleted.
        """
        exists, has_next = self._exists(path), self._exists(_next(path))
        if has_next and exists:
            self.system.delete_file(_next(path))
        elif has_next:
            self._rename(_next(path), path)
        return exists or has_next

    def _info(self, path: str) -> fs.FileInfo:
        """Return pyarrow's entry for a file that has its own name or only its second name."""
        for place in (path, _next(path)):
            entry = super()._info(place)
            if entry.type != fs.FileType.NotFound:
                return entry
        return super()._info(path)  # the replacement has ended meanwhile

    def _exists(self, path: str) -> bool:
        return bool(super()._info(path).type != fs.FileType.NotFound)

    def _rename(self, path: str, target: str) -> None:
        try:
            self.system.move(path, target)
        except NotImplementedError as error:  # such as Azure without a hierarchical namespace
            raise ConfigurationError(
                f"{target} cannot be written, since its file system does not rename files ({error}); "
                "put the folder on another file system; on Azure, use an account with a hierarchical namespace"
            ) from error


def files_at(uri: str) -> tuple[CheckpointFiles, str]:
    """Return the file system that a URI in pyarrow's form names, and the path in this file system.

    Raises:
        OSError: if the file system cannot be used.
        ValueError: if pyarrow knows no such file system.
    """
    system, path = fs.FileSystem.from_uri(uri)
    return files_of(system), path


def files_of(system: fs.FileSystem) -> CheckpointFiles:
    """Return an object for the files of a file system; its class depends on how the system replaces files."""
    return (ArrowFiles if system.type_name in _REPLACES_IN_ONE_STEP else RenamedFiles)(system)


def _facts(info: fs.FileInfo) -> FileFacts | None:
    return FileFacts(info.size, info.mtime_ns or 0) if info.type == fs.FileType.File else None


def _next(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}{_NEXT}"


def _is_next(name: str) -> bool:
    return name.startswith(".") and name.endswith(_NEXT)


def _first_name(second: str) -> str:
    return second[1 : -len(_NEXT)]
