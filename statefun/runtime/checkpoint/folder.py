# SPDX-License-Identifier: Apache-2.0
"""The only access to file systems: folders that both Spark (through Hadoop) and pyarrow can open."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import attrs
from pyarrow import fs

from statefun.runtime.checkpoint.file_systems import (
    CheckpointFiles,
    files_at,
    files_of,
    temporary_name,
)
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.shown_uris import shown_uri, without_secrets

# Schemes that have other names in Hadoop than in pyarrow.
_PYARROW_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@attrs.frozen
class FileFacts:
    """The size of a file, and when it was modified."""

    size: int
    """In bytes."""
    modified: int
    """Nanoseconds since the epoch; 0 if it is not known."""


@attrs.frozen(slots=False)
class Folder:
    """A folder by location; it exists after the first write into it.

    It holds no open connection, so that it travels between processes.

    >>> Folder.at("/tmp/a b").child("outbox").spark_uri
    'file:/tmp/a b/outbox'
    """

    location: str = attrs.field(repr=shown_uri)
    """A local absolute path, or a URI of another file system, perhaps with pyarrow's options as its
    query."""

    @classmethod
    def at(cls, location: str | Path) -> Folder:
        """Return the folder at a local path (made absolute) or a URI.

        Raises:
            ConfigurationError: if pyarrow knows no such file system, or the URI has a password.
        """
        text = str(location)
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
        if scheme is None or scheme[1] == "file":
            path = text if scheme is None else unquote(urlsplit(text).path)
            return cls(str(Path(path).absolute()))
        if urlsplit(text).password is not None:
            raise ConfigurationError(
                f"the URI of a folder ({scheme[1]}://...) has a password in it, which logs and "
                "errors would show; give it to Spark (such as spark.hadoop.fs.s3a.secret.key) and "
                "to pyarrow (such as the environment variable AWS_SECRET_ACCESS_KEY)"
            )
        path, mark, query = text.partition("?")
        folder = cls(path.rstrip("/") + mark + query)
        try:
            _ = folder._files
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"folder {shown_uri(text)!r} cannot be used: {without_secrets(error, text)}"
            ) from None
        return folder

    @property
    def shown(self) -> str:
        """Its location for logs and errors: of its query, which may hold secrets, the names alone."""
        return shown_uri(self.location)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine's own file system."""
        return self.location.startswith("/")

    @property
    def spark_uri(self) -> str:
        """The folder's URI for Spark, without pyarrow's query: Spark has separate settings."""
        return f"file:{self.location}" if self.is_local else self.location.partition("?")[0]

    def child(self, name: str) -> Folder:
        """Return a folder inside this one."""
        if self.is_local:
            return Folder(f"{self.location}/{name}")
        path, mark, query = self.location.partition("?")
        return Folder(f"{path}/{name}{mark}{query}")

    @cached_property
    def _files(self) -> tuple[CheckpointFiles, str]:
        """The file system, and the folder's path in it."""
        if self.is_local:
            return files_of(fs.LocalFileSystem()), self.location
        scheme, rest = self.location.split(":", 1)
        return files_at(f"{_PYARROW_SCHEMES.get(scheme, scheme)}:{rest}")

    def __getstate__(self) -> str:
        return self.location

    def __setstate__(self, location: str) -> None:
        object.__setattr__(self, "location", location)

    def names(self) -> list[str]:
        """List the names directly inside; empty if the folder does not exist."""
        files, path = self._files
        return sorted(files.list(path))

    def files(self) -> dict[str, FileFacts]:
        """List the files directly inside, by their names; empty if the folder does not exist."""
        files, path = self._files
        return {
            name: FileFacts(info.size, info.mtime_ns or 0)
            for name, info in files.list(path).items()
            if info.type == fs.FileType.File
        }

    def facts(self, name: str) -> FileFacts | None:
        """Return the size of a file, and when it was modified; None if there is no such file."""
        files, path = self._files
        info = files.info(f"{path}/{name}")
        if info.type != fs.FileType.File:
            return None
        return FileFacts(info.size, info.mtime_ns or 0)

    def exists(self) -> bool:
        """Return whether the folder exists."""
        files, path = self._files
        return bool(files.info(path).type == fs.FileType.Directory)

    def has(self, name: str) -> bool:
        """Return whether a file of that name exists."""
        files, path = self._files
        return files.has(f"{path}/{name}")

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        files, path = self._files
        return files.open(f"{path}/{name}")

    def read(self, name: str) -> bytes:
        """Return a file's content; raises FileNotFoundError."""
        with self.open(name) as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file so that readers see all of it or nothing.

        After a crash during the write, the file has its old content or the new one. When this returns, the
        new content also outlives a loss of power, as far as the file system keeps its promises.
        """
        files, path = self._files
        if self.is_local:
            _write_locally(Path(path), name, content)
        else:
            files.write(f"{path}/{name}", content)

    def move(self, name: str, target: str) -> None:
        """Rename a file; raises FileNotFoundError. The target may be in a folder below.

        Some file systems delete an existing target first; a crash then leaves the file as it was.
        """
        files, path = self._files
        if self.is_local:
            _move_locally(Path(path), name, target)
        else:
            files.move(f"{path}/{name}", f"{path}/{target}")

    def finish_replacing(self) -> None:
        """Finish the replacements of files directly inside that a crash has interrupted.

        All other methods of this class do so where they have to. Other readers, such as Spark, only find
        the files' own names.
        """
        files, path = self._files
        files.finish_replacing(path)

    def sync(self, name: str) -> None:
        """Flush a file that another process has written, if it exists, to the disk."""
        if self.is_local:
            with suppress(FileNotFoundError):
                sync_path(Path(self.location) / name)
                sync_path(Path(self.location))

    def sync_names(self) -> None:
        """Flush the list of files in the folder to the disk."""
        if self.is_local:
            sync_path(Path(self.location))

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        files, path = self._files
        files.remove(f"{path}/{name}")

    def remove_all(self) -> None:
        """Delete the folder and everything in it, if it exists."""
        files, path = self._files
        if files.has(path):
            files.system.delete_dir(path)


_CANNOT_SYNC = {errno.EBADF, errno.EINVAL}
"""Error numbers of file systems that cannot sync folders."""


def _write_locally(folder: Path, name: str, content: bytes) -> None:
    """Write a temporary file, then rename it; each step is on the disk before the next one.

    If this fails, the temporary file is deleted: attempt by attempt, such files would fill a full disk.
    """
    _make(folder)
    temporary = folder / temporary_name(name)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / name)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_path(folder)


def _move_locally(folder: Path, name: str, target: str) -> None:
    """Rename a file; when this returns, it has only the new name on the disk."""
    new_path = folder / target
    _make(new_path.parent)
    (folder / name).replace(new_path)
    sync_path(new_path.parent)  # a journal has both names of a renamed file in one entry


def _make(folder: Path) -> None:
    """Create a folder and its parents, where they are missing."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_path(folder.parent)


def sync_path(path: Path) -> None:
    """Flush the content of a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
