# SPDX-License-Identifier: Apache-2.0
"""Access to files in HDFS through hdfs-native, which speaks the protocol of HDFS itself, without Java and without libhdfs.

A file is written under a temporary name and then renamed. The NameNode renames in one step, and either replaces a file of
the new name or refuses the rename: so a file is replaced whole, and one of several callers creates it. See
``ClientProtocol.rename2`` of Hadoop.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from statefun.runtime.checkpoint.boot_clock import now
from statefun.runtime.checkpoint.checkpoint_files import FileFacts, StoreFiles, temporary_name
from statefun.runtime.checkpoint.store_errors import StoreError, hdfs_error
from statefun.sdk.errors import ConfigurationError

if TYPE_CHECKING:  # importing it takes a while, and most checkpoints are local
    from hdfs_native import Client, FileReader, FileStatus

T = TypeVar("T")

HDFS = "hdfs"
"""The scheme of URIs of HDFS."""
_RETRY_TIME = timedelta(seconds=10)
"""How long a step is tried again if the NameNode does not answer, or refuses it for the moment."""
_PAUSE = timedelta(milliseconds=500)
_STEP_TIME = timedelta(seconds=30)
"""How long a step takes at most, with all its attempts: the NameNode may have stopped in the middle of one."""
_SETTINGS = {
    "dfs.client.socket-timeout": "9000",
    "dfs.client.failover.max.attempts": "8",
    "dfs.client.failover.sleep.max.millis": "1000",
}
"""How long the client waits for DataNodes, and how long it looks for a NameNode that is active."""
_FOR_THE_MOMENT = ("SafeModeException", "RetriableException", "StandbyException")
"""Errors of a NameNode that has just started, or waits for another one."""
_FINAL = (FileNotFoundError, FileExistsError, PermissionError)


def _in_time(step: Callable[..., T]) -> Callable[..., T]:
    """Give up a step that takes too long, and raise errors of the client as a StoreError with one line of text."""

    @wraps(step)
    def in_time(self: HdfsFiles, *arguments: Any) -> T:
        try:
            return _within(partial(step, self, *arguments), _STEP_TIME)
        except (FileNotFoundError, StoreError):
            raise
        except (TimeoutError, futures.TimeoutError):  # Python 3.10 has two
            raise hdfs_error(self.root, f"no answer for {_STEP_TIME.total_seconds():g} s") from None
        except (OSError, RuntimeError, ValueError) as error:
            raise hdfs_error(self.root, str(error)) from error

    return in_time


class _Deadline(threading.local):
    """The time at which the step of this thread is given up, in seconds of the clock of :func:`now`."""

    end = float("inf")


_deadline = _Deadline()


def _within(step: Callable[[], T], limit: timedelta) -> T:
    """Return the result of a step; raises TimeoutError if it takes longer than ``limit``.

    The client waits for an answer of the NameNode without a limit, and nothing can interrupt it. A step that is given up
    makes no further request, as another driver may use the files by then.
    """
    result = futures.Future[T]()

    def run() -> None:
        _deadline.end = now() + limit.total_seconds()
        try:
            result.set_result(step())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            result.set_exception(error)

    threading.Thread(target=run, name="statefun hdfs", daemon=True).start()
    return result.result(limit.total_seconds())


class HdfsFiles(StoreFiles):
    """Access to the files of an HDFS, by absolute path.

    Args:
        client: the client.
        root: the URI of the root folder, for errors.
    """

    def __init__(self, client: Client, root: str) -> None:
        self.client = client
        self.root = root

    @_in_time
    def list(self, folder: str) -> dict[str, FileFacts | None]:
        """Return the entries of a folder by name: the facts of files, and None for folders."""
        with suppress(FileNotFoundError):
            found = _attempted(lambda: [*self.client.list_status(folder)])
            return {_name(each.path): _facts(each) for each in found}
        return {}

    @_in_time
    def facts(self, path: str) -> FileFacts | None:
        """Return the facts of a file; None if no file has this path."""
        status = self._status(path)
        return None if status is None else _facts(status)

    @_in_time
    def has(self, path: str) -> bool:
        """Return whether a file or folder with this path exists."""
        return self._status(path) is not None

    @_in_time
    def has_folder(self, path: str) -> bool:
        """Return whether a folder with this path exists."""
        status = self._status(path)
        return status is not None and status.isdir

    @_in_time
    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        return io.BufferedReader(_Reader(_attempted(lambda: self.client.read(path)), self.root))

    @_in_time
    def read(self, path: str) -> bytes:
        """Return the content of a file; raises FileNotFoundError."""
        return self._content(path)

    @_in_time
    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file; create its folder if it is missing."""
        self._rename(self._written(path, content), path, overwrite=True)

    @_in_time
    def create(self, path: str, content: bytes) -> bool:
        """Create a file only if there is none with this path; return whether the file has this content now.

        If the answer to a request is lost, the content of the file shows whether this call has created it. So no two
        callers may create the same content.
        """
        written = self._written(path, content)
        try:
            self._rename(written, path, overwrite=False)
        except FileExistsError:
            _attempted(lambda: self.client.delete(written))
            return self._content(path) == content
        return True

    @_in_time
    def move(self, path: str, target: str) -> None:
        """Rename a file, and create the folder of its new path if it is missing; raises FileNotFoundError."""
        self._status_of(path)  # otherwise an empty folder would be created
        _attempted(lambda: self.client.mkdirs(_folder(target), create_parent=True))
        self._rename(path, target, overwrite=True)

    @_in_time
    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        _attempted(lambda: self.client.delete(path))

    @_in_time
    def remove_folder(self, path: str) -> None:
        """Delete a folder and everything in it, if it exists."""
        _attempted(lambda: self.client.delete(path, recursive=True))

    def _status_of(self, path: str) -> FileStatus:
        return _attempted(lambda: self.client.get_file_info(path))

    def _status(self, path: str) -> FileStatus | None:
        with suppress(FileNotFoundError):
            return self._status_of(path)
        return None

    def _content(self, path: str) -> bytes:
        return _attempted(lambda: self.client.read(path).read())

    def _written(self, path: str, content: bytes) -> str:
        """Write content to the disks of DataNodes under a temporary name, and return the path of this file."""
        return _attempted(lambda: self._write_temporary(path, content))

    def _write_temporary(self, path: str, content: bytes) -> str:
        from hdfs_native import WriteOptions  # noqa: PLC0415 - see TYPE_CHECKING above

        written = f"{_folder(path)}/{temporary_name(_name(path))}"
        try:
            file = self.client.create(written, WriteOptions(create_parent=True))
            try:
                if content:
                    file.write(content)
                    file.hsync()
                file.close()
            finally:
                # Otherwise the garbage collector would send a further request, and wait for its answer in any thread.
                io.IOBase.close(file)
        except (OSError, RuntimeError):
            with suppress(OSError, RuntimeError):
                self.client.delete(written)
            raise
        return written

    def _rename(self, path: str, target: str, *, overwrite: bool) -> None:
        """Rename a file; raises FileExistsError if ``target`` exists and ``overwrite`` is False.

        If the answer to an attempt is lost, the next one may not find the file: then the earlier one has renamed it.
        """
        attempts = 0

        def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                self.client.rename(path, target, overwrite)
            except FileNotFoundError:
                if attempts == 1:
                    raise

        _attempted(attempt)


def _attempted(step: Callable[[], T]) -> T:
    """Run a step; if it fails for a reason that may pass, run it again for some time."""
    end = now() + _RETRY_TIME.total_seconds()
    while True:
        if now() >= _deadline.end:
            raise TimeoutError
        try:
            return step()
        except _FINAL:
            raise
        except (OSError, RuntimeError) as error:
            is_passing = isinstance(error, OSError) or any(
                name in str(error) for name in _FOR_THE_MOMENT
            )
            if not is_passing or now() >= end:
                raise
        time.sleep(_PAUSE.total_seconds())


class _Reader(io.RawIOBase):
    """An open file of HDFS without a buffer, to which :class:`io.BufferedReader` adds one."""

    def __init__(self, file: FileReader, root: str) -> None:
        self._file = file
        self._root = root

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read(len(buffer))
        except (OSError, RuntimeError) as error:
            raise hdfs_error(self._root, str(error)) from error
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()


def hdfs_at(uri: str) -> tuple[HdfsFiles, str]:
    """Return the HDFS that a URI names, and the absolute path in it.

    Raises:
        ConfigurationError: if hdfs-native is missing.
        ValueError: if the URI has options, or Hadoop's configuration does not know its NameNode.
    """
    location, mark, _ = uri.partition("?")
    if mark:
        raise ValueError("the URI of a folder in HDFS has no options")
    authority, _, path = location.removeprefix(f"{HDFS}://").partition("/")
    return _hdfs(f"{HDFS}://{authority}"), f"/{path.rstrip('/')}"


@lru_cache(maxsize=16)
def _hdfs(root: str) -> HdfsFiles:
    """Return the files of an HDFS; calls with the same argument share connections."""
    try:
        from hdfs_native import Client  # noqa: PLC0415 - see TYPE_CHECKING above
    except ImportError:
        raise ConfigurationError(
            "checkpoints in HDFS need the package hdfs-native: pip install 'statefun[hdfs]'"
        ) from None
    try:
        return HdfsFiles(Client(f"{root}/", _SETTINGS), root)
    except RuntimeError as error:
        raise ValueError(
            f"{error}; the URI has the form hdfs://HOST:PORT/PATH, or names a service that core-site.xml and hdfs-site.xml "
            "in the folder HADOOP_CONF_DIR declare"
        ) from None


def _facts(status: FileStatus) -> FileFacts | None:
    return None if status.isdir else FileFacts(status.length, status.modification_time * 1_000_000)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
