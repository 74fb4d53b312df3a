# SPDX-License-Identifier: Apache-2.0
"""Access to the files of this machine, whose changes outlive a loss of power."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from statefun.runtime.checkpoint.checkpoint_files import CheckpointFiles, FileFacts, temporary_name

logger = logging.getLogger("statefun")

_MISSING = (FileNotFoundError, NotADirectoryError)
_ACCESS_RIGHTS = 0o777
"""Reading, writing and running; not the rights to run as the owner."""


class LocalFiles(CheckpointFiles):
    """Access to local files; a rename replaces a file in one step.

    When a change returns, it is on the disk, as far as the file system keeps its promises.
    """

    def list(self, folder: str) -> dict[str, FileFacts | None]:
        """Return the entries of a folder by name: the facts of files, and None for folders.

        Other entries, such as pipes, which would block their reader, are left out with one warning for each.
        """
        found: dict[str, FileFacts | None] = {}
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_dir():
                        found[entry.name] = None
                    elif stat.S_ISREG((status := entry.stat()).st_mode):
                        found[entry.name] = _facts(status)
                    else:
                        _warn_once(entry.path, "it is neither a file nor a folder")
                except FileNotFoundError:  # somebody has just deleted it, or a link leads nowhere
                    pass
                except OSError as error:
                    if not entry.is_symlink():
                        raise
                    _warn_once(entry.path, f"the link cannot be followed: {error.strerror}")
        return found

    def facts(self, path: str) -> FileFacts | None:
        """Return the facts of a file; None if no file has this path."""
        with suppress(*_MISSING):
            found = Path(path).stat()
            return _facts(found) if stat.S_ISREG(found.st_mode) else None
        return None

    def has(self, path: str) -> bool:
        """Return whether a file or folder with this path exists."""
        with suppress(*_MISSING):
            Path(path).stat()
            return True
        return False

    def has_folder(self, path: str) -> bool:
        """Return whether a folder with this path exists."""
        return Path(path).is_dir()

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; raises FileNotFoundError."""
        return Path(path).open("rb")

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file; create its folder if it is missing."""
        folder, _, name = path.rpartition("/")
        _write_locally(Path(folder), name, content)

    def move(self, path: str, target: str) -> None:
        """Rename a file, and create the folder of its new path if it is missing; raises FileNotFoundError."""
        _move_locally(Path(path), Path(target))

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        Path(path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        """Delete a folder and everything in it, if it exists."""
        if self.has(path):
            shutil.rmtree(path)


_CANNOT_SYNC = {errno.EBADF, errno.EINVAL}
"""Error numbers with which file systems answer that they cannot flush a folder to the disk."""


def _write_locally(folder: Path, name: str, content: bytes) -> None:
    """Write a temporary file, then rename it; each step is on the disk before the next step begins.

    If a step fails, the temporary file is deleted: otherwise repeated attempts would fill the disk.
    """
    _make(folder)
    temporary = folder / temporary_name(name)
    try:
        with temporary.open("wb") as file:
            _keep_access(file.fileno(), folder / name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / name)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_path(folder)


def _move_locally(path: Path, target: Path) -> None:
    """Rename a local file; when this function returns, the new name is on the disk and the old one is gone."""
    _make(target.parent)
    path.replace(target)
    sync_path(target.parent)  # a journal has both names of a renamed file in one entry


def _make(folder: Path) -> None:
    """Create a local folder and its parents if they are missing, and flush their names to the disk."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _keep_owner(folder, folder.parent.stat())
        sync_path(folder.parent)


def _keep_access(file: int, path: Path) -> None:
    """Give a new file the owner and the access rights of the file that it replaces, or else the owner of its folder.

    Otherwise the application of another user could not read what a command of root has written. That user may have put
    anything at ``path``: neither a link nor the rights of a program that runs as its owner are kept.
    """
    former = None
    with suppress(FileNotFoundError):
        found = path.lstat()
        former = found if stat.S_ISREG(found.st_mode) else None
    _keep_owner(file, former or path.parent.stat())
    if former is not None:
        with suppress(OSError):  # a file system without access rights
            os.chmod(file, former.st_mode & _ACCESS_RIGHTS)


def _keep_owner(path: Path | int, owner: os.stat_result) -> None:
    """Give a new file or folder an owner, if this process is of root: others cannot, and need not."""
    if os.geteuid() == 0:
        with suppress(
            OSError
        ):  # a file system without owners, or that does not trust the root of this machine
            os.chown(path, owner.st_uid, owner.st_gid)


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


@lru_cache(maxsize=1000)
def _warn_once(path: str, problem: str) -> None:
    logger.warning("%s is left out: %s", path, problem)


def _facts(found: os.stat_result) -> FileFacts:
    return FileFacts(found.st_size, found.st_mtime_ns)
