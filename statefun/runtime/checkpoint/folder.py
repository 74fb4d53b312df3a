# SPDX-License-Identifier: Apache-2.0
"""The only access to file systems: folders that both Spark (Hadoop) and pyarrow reach."""

from __future__ import annotations

import errno
import os
import re
import uuid
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

import attrs
from pyarrow import fs

from statefun.sdk.errors import ConfigurationError

# Schemes that Hadoop and pyarrow call by different names.
_PYARROW_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@attrs.frozen
class FileFacts:
    """What a file system says of a file."""

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

    location: str
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
            _ = folder._filesystem
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"folder {text!r} cannot be used: {error}") from error
        return folder

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
    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        if self.is_local:
            return fs.LocalFileSystem(), self.location
        scheme, rest = self.location.split(":", 1)
        return cast(
            "tuple[fs.FileSystem, str]",
            fs.FileSystem.from_uri(f"{_PYARROW_SCHEMES.get(scheme, scheme)}:{rest}"),
        )

    def __getstate__(self) -> str:
        return self.location

    def __setstate__(self, location: str) -> None:
        object.__setattr__(self, "location", location)

    def names(self) -> list[str]:
        """List the names directly inside; empty if the folder does not exist."""
        filesystem, path = self._filesystem
        selector = fs.FileSelector(path, allow_not_found=True)
        return sorted(info.base_name for info in filesystem.get_file_info(selector))

    def files(self) -> dict[str, FileFacts]:
        """List the files directly inside, by their names; empty if the folder does not exist."""
        filesystem, path = self._filesystem
        selector = fs.FileSelector(path, allow_not_found=True)
        return {
            info.base_name: FileFacts(info.size, info.mtime_ns or 0)
            for info in filesystem.get_file_info(selector)
            if info.type == fs.FileType.File
        }

    def exists(self) -> bool:
        """Tell whether the folder exists."""
        filesystem, path = self._filesystem
        return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)

    def has(self, name: str) -> bool:
        """Tell whether a file of that name exists."""
        filesystem, path = self._filesystem
        return bool(filesystem.get_file_info(f"{path}/{name}").type != fs.FileType.NotFound)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        filesystem, path = self._filesystem
        return cast("BinaryIO", filesystem.open_input_file(f"{path}/{name}"))

    def read(self, name: str) -> bytes:
        """Return a file's content; raises FileNotFoundError."""
        with self.open(name) as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file so that readers see all of it or nothing.

        When this returns, the file also outlives a loss of power, as far as the file system keeps
        its promises.
        """
        filesystem, path = self._filesystem
        if self.is_local:
            _write_locally(Path(path), name, content)
        elif isinstance(filesystem, fs.HadoopFileSystem):
            filesystem.create_dir(path, recursive=True)
            temporary = _temporary(name)
            with filesystem.open_output_stream(f"{path}/{temporary}") as stream:
                stream.write(content)
            filesystem.move(f"{path}/{temporary}", f"{path}/{name}")
        else:
            # Object stores make an object visible only when it is complete.
            with filesystem.open_output_stream(f"{path}/{name}") as stream:
                stream.write(content)

    def move(self, name: str, target: str) -> None:
        """Rename a file; raises FileNotFoundError. The target may be in a folder below."""
        filesystem, path = self._filesystem
        parent = f"{path}/{target}".rpartition("/")[0]
        filesystem.create_dir(parent, recursive=True)
        filesystem.move(f"{path}/{name}", f"{path}/{target}")
        if self.is_local:
            sync_path(Path(parent))

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
        filesystem, path = self._filesystem
        if self.has(name):
            filesystem.delete_file(f"{path}/{name}")

    def remove_all(self) -> None:
        """Delete the folder and everything in it, if it exists."""
        filesystem, path = self._filesystem
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            filesystem.delete_dir(path)


_CANNOT_SYNC = {errno.EBADF, errno.EINVAL}
"""Answers of file systems that cannot sync folders."""


def _temporary(name: str) -> str:
    return f".{name}.{uuid.uuid4().hex}.tmp"


def _write_locally(folder: Path, name: str, content: bytes) -> None:
    """Write a temporary file, then rename it; each step is on the disk before the next one."""
    _make(folder)
    temporary = folder / _temporary(name)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / name)
    sync_path(folder)


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
