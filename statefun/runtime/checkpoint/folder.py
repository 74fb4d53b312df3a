# SPDX-License-Identifier: Apache-2.0
"""Folders that both Spark (through Hadoop) and this package can open; other modules use files only through them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import attrs

from statefun.runtime.checkpoint.checkpoint_files import CheckpointFiles, FileFacts, StoreFiles
from statefun.runtime.checkpoint.hdfs import HDFS, hdfs_at
from statefun.runtime.checkpoint.kept_files import KeptFiles
from statefun.runtime.checkpoint.local_files import LocalFiles, sync_path
from statefun.runtime.checkpoint.object_store import SCHEMES, object_store_at
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.shown_uris import shown_uri, without_secrets


@attrs.frozen(slots=False)
class Folder:
    """A folder at a location, local or on another file system; it exists after the first write into it.

    The object has no open connection, so it can be sent to other processes.

    >>> Folder.at("/tmp/a b").child("outbox").spark_uri
    'file:/tmp/a b/outbox'
    """

    location: str = attrs.field(repr=shown_uri)
    """A local absolute path, or a URI of another file system. The query of the URI may have options of
    pyarrow's."""
    _guard: Callable[[], None] | None = attrs.field(default=None, eq=False, repr=False)
    """Called before each change of a file; it raises an error if this process may not change files any more."""
    kept: KeptFiles | None = attrs.field(default=None, eq=False, repr=False)
    """The permanent files that this process knows, if it owns the checkpoint in a store."""

    @classmethod
    def at(cls, location: str | Path) -> Folder:
        """Return the folder at a local path (made absolute) or a URI.

        Raises:
            ConfigurationError: if neither obstore, hdfs-native nor pyarrow knows such a file system, or the URI has a
                password.
        """
        text = str(location)
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
        if scheme is None or scheme[1] == "file":
            path = text if scheme is None else unquote(urlsplit(text).path)
            return cls(str(Path(path).absolute()))
        if urlsplit(text).password is not None:
            raise ConfigurationError(
                f"the URI of a folder ({scheme[1]}://...) must not have a password in it, because logs and "
                "errors would show it; give it to Spark in a setting such as spark.hadoop.fs.s3a.secret.key, and "
                "to pyarrow in an environment variable such as AWS_SECRET_ACCESS_KEY"
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
        """The folder's location for logs and errors; its URI's query has no values, as they may be secret."""
        return shown_uri(self.location)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a file system of this machine."""
        return self.location.startswith("/")

    @property
    def is_object_store(self) -> bool:
        """Whether the folder is in an S3-compatible store."""
        return self.location.partition(":")[0] in SCHEMES

    @property
    def is_store(self) -> bool:
        """Whether the folder is in a store that several machines reach, where a lease names the only driver.

        Such stores are S3-compatible ones, and HDFS.
        """
        return self.is_object_store or self._is_in_hdfs

    @property
    def _is_in_hdfs(self) -> bool:
        return self.location.partition(":")[0] == HDFS

    @property
    def spark_uri(self) -> str:
        """The folder's URI for Spark, without the query: its options are for pyarrow, not for Spark."""
        return f"file:{self.location}" if self.is_local else self.location.partition("?")[0]

    def child(self, name: str) -> Folder:
        """Return the folder with this name inside this folder; it need not exist."""
        if self.is_local:
            return Folder(f"{self.location}/{name}", self._guard)
        path, mark, query = self.location.partition("?")
        return Folder(f"{path}/{name}{mark}{query}", self._guard, self.kept)

    def guarded(self, guard: Callable[[], None]) -> Folder:
        """Return this folder of a store for the owner of the checkpoint: it keeps permanent files in memory.

        It calls ``guard`` before each change of a file in it or below it. ``guard`` raises an error if this process may
        not change files any more. If the folder is sent to another process, it does neither of these there.
        """
        return Folder(self.location, guard, KeptFiles())

    def check_owner(self) -> None:
        """Check that this process may change files; raise the error of the guard if it may not."""
        self._may_change()

    def _may_change(self) -> None:
        if self._guard is not None:
            self._guard()

    @cached_property
    def _files(self) -> tuple[CheckpointFiles, str]:
        """The object that accesses the folder's file system, and the folder's path in it."""
        if self.is_local:
            return LocalFiles(), self.location
        if self.is_object_store:
            return object_store_at(self.location)
        if self._is_in_hdfs:
            return hdfs_at(self.location)
        # Imported here, as local checkpoints and stores need no pyarrow, which takes long to import.
        from statefun.runtime.checkpoint import file_systems  # noqa: PLC0415 - see above

        return file_systems.files_at(self.location)

    def __getstate__(self) -> str:
        return self.location

    def __setstate__(self, location: str) -> None:
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "_guard", None)
        object.__setattr__(self, "kept", None)

    def entries(self) -> dict[str, FileFacts | None]:
        """Return the entries of this folder by name: the facts of files, and None for folders.

        The result is empty if the folder does not exist.
        """
        files, path = self._files
        return files.list(path)

    def names(self) -> list[str]:
        """Return the names of the files and folders directly inside; empty if the folder does not exist."""
        return sorted(self.entries())

    def files(self) -> dict[str, FileFacts]:
        """Return the files directly inside, by name; empty if the folder does not exist."""
        return {name: facts for name, facts in self.entries().items() if facts is not None}

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files in the folder and below it, in bytes, by their paths in the folder."""
        files, path = self._files
        return files.sizes(path)

    def facts(self, name: str) -> FileFacts | None:
        """Return the size of a file and when it was modified last; None if there is no such file."""
        files, path = self._files
        return files.facts(f"{path}/{name}")

    def exists(self) -> bool:
        """Return whether the folder exists."""
        files, path = self._files
        return files.has_folder(path)

    def has(self, name: str) -> bool:
        """Return whether a file or folder with this name exists in the folder; an object store finds only files."""
        files, path = self._files
        if self.kept is not None and self.kept.has(f"{path}/{name}"):
            return True
        return files.has(f"{path}/{name}")

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        files, path = self._files
        return files.open(f"{path}/{name}")

    def read(self, name: str) -> bytes:
        """Return a file's content; raises FileNotFoundError."""
        files, path = self._files
        if self.kept is not None:
            return self.kept.read(f"{path}/{name}", files.read)
        return files.read(f"{path}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file so that readers see its old content or all of its new content.

        This is also true after a crash during the write. When this method returns, the new content also outlives
        a loss of power, as far as the file system keeps its promises.
        """
        self._may_change()
        files, path = self._files
        files.write(f"{path}/{name}", content)
        if self.kept is not None:
            self.kept.keep(f"{path}/{name}", content)

    def create(self, name: str, content: bytes) -> bool:
        """Create a file in a store if no file has this name; return whether it has this content now.

        If the answer to a request is lost, the content of the file shows whether this call has created it. So no two
        callers may create the same content.
        """
        self._may_change()
        files, path = self._files
        if not isinstance(files, StoreFiles):
            raise AssertionError(f"{self.shown} is not in a store")  # noqa: TRY004 - a caller's mistake
        return files.create(f"{path}/{name}", content)

    def move(self, name: str, target: str) -> None:
        """Rename a file of the folder; raises FileNotFoundError. The new name may be in a folder below this one.

        Some file systems first delete a file that has the new name. After a crash between the two steps, that file is gone,
        and the other one still has its old name.
        """
        self._may_change()
        files, path = self._files
        files.move(f"{path}/{name}", f"{path}/{target}")

    def finish_replacing(self) -> None:
        """Finish replacements of files in this folder that a crash has interrupted.

        The other methods of this class find such files anyway. Other readers, such as Spark, find a file only
        under its own name.
        """
        files, path = self._files
        files.finish_replacing(path)

    def sync(self, name: str) -> None:
        """Flush a file of another process, such as Spark, to the disk; do nothing if the file is missing."""
        if self.is_local:
            with suppress(FileNotFoundError):
                sync_path(Path(self.location) / name)
                sync_path(Path(self.location))

    def sync_names(self) -> None:
        """Flush the list of the folder's files to the disk, so that a loss of power does not change it."""
        if self.is_local:
            sync_path(Path(self.location))

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._may_change()
        files, path = self._files
        try:
            files.remove(f"{path}/{name}")
        finally:  # afterwards, as another thread may have read the file meanwhile
            if self.kept is not None:
                self.kept.keep(f"{path}/{name}", None)

    def remove_several(self, names: Sequence[str]) -> None:
        """Delete several files, if they exist; an object store needs only one request for many of them."""
        self._may_change()
        files, path = self._files
        try:
            files.remove_several([f"{path}/{name}" for name in names])
        finally:  # see above
            if self.kept is not None:
                for name in names:
                    self.kept.keep(f"{path}/{name}", None)

    def remove_all(self) -> None:
        """Delete the folder and everything in it, if it exists."""
        self._may_change()
        files, path = self._files
        try:
            files.remove_folder(path)
        finally:
            if self.kept is not None:
                self.kept.drop(path)


def missing_checkpoint(folder: Folder) -> ConfigurationError:
    """Return the error for a folder that should be a checkpoint, and in which no application has run.

    >>> str(missing_checkpoint(Folder.at("/tmp/none")))
    '[SF100] there is no checkpoint at /tmp/none; check the path, or start the application first: it makes its checkpoint'
    """
    return ConfigurationError(
        f"there is no checkpoint at {folder.shown}; check the path, or start the application first: it makes its checkpoint"
    )
