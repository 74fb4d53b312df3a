# SPDX-License-Identifier: Apache-2.0
"""A disk that survives processes, and of a loss of power what was synced.

Until a folder is synced, each name in it may be on the disk as it is or as it was; until a file is
synced, any part of its content may be missing. A file that has moved to another folder has one of its
names, as journals have it.
"""

from __future__ import annotations

import errno
import io
import os
import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast
from unittest import mock

import attrs

from simulation.chaos import Chaos
from statefun.runtime.checkpoint import local_files as filesystem
from statefun.runtime.checkpoint.folder import Folder


class Disk:
    """Files by path, as processes see them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.is_damaged = False
        """Whether something was lost that Spark had not synced, or that was synced."""
        self._folders: set[str] = set()
        self._names: dict[str, list[bytes | None]] = {}
        """By path, the contents that the disk may have instead of the visible one."""
        self._moves: dict[str, str] = {}
        """The new paths of files that have moved to other folders, by the old ones."""
        self._contents: set[str] = set()
        """The files whose content need not be on the disk."""

    def copy(self) -> Disk:
        """Return a copy, all of which is on its disk."""
        disk = Disk()
        disk.files, disk._folders = dict(self.files), set(self._folders)
        return disk

    def create(self, path: str, content: bytes) -> None:
        """Write a file."""
        self._names.setdefault(path, []).append(self.files.get(path))
        self.files[path] = content
        self._contents.add(path)

    def name(self, path: str, content: bytes) -> None:
        """Write a file as somebody does who ends before the folder is on the disk."""
        temporary = f"{path}.tmp"
        self.create(temporary, content)
        self.sync(temporary)
        self.rename(temporary, path)

    def rename(self, path: str, target: str) -> None:
        """Let a file take the place of another one."""
        self._names.setdefault(target, []).append(self.files.get(target))
        content = self.files[path]
        self._names.setdefault(path, []).append(content)
        self.files[target] = self.files.pop(path)
        self._contents.discard(target)
        if path in self._contents:
            self._contents.remove(path)
            self._contents.add(target)
        if _parent(path) != _parent(target):
            self._moves[path] = target

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        if path in self.files:
            self._names.setdefault(path, []).append(self.files.pop(path))
            self._contents.discard(path)

    def has_folder(self, path: str) -> bool:
        """Return whether a folder was created."""
        return path in self._folders

    def create_folder(self, path: str) -> None:
        """Create a folder."""
        self._folders.add(path)

    def sync(self, path: str) -> None:
        """Flush the content of a file, or the names in a folder, to the disk."""
        self._contents.discard(path)
        moves = [each for each in self._moves.items() if path in map(_parent, each)]
        for name in [name for name in self._names if _parent(name) == path]:
            del self._names[name]
        for move in moves:
            for name in move:
                self._names.pop(name, None)
            del self._moves[move[0]]

    def sync_all(self) -> None:
        """Put everything on the disk, as systems do in the background."""
        self._names.clear()
        self._moves.clear()
        self._contents.clear()

    def lose_power(self, generator: random.Random, rot: float) -> None:
        """Forget all or some of the content that is not synced."""
        for path, target in self._moves.items():
            if generator.random() < 0.5:
                self.files[path] = self.files.pop(target)
            for name in (path, target):
                self._names.pop(name, None)
        for path in sorted({*self._names, *self._contents}):
            seen = self.files.get(path)
            content = generator.choice([*self._names.get(path, []), seen])
            if content is seen and seen is not None and path in self._contents:
                content = _torn(seen, generator)
            if content is None:
                self.files.pop(path, None)
            else:
                self.files[path] = content
            if content != seen and is_sparks(path):
                self.is_damaged = True
        self.sync_all()
        own = sorted(path for path in self.files if not is_sparks(path) and self.files[path])
        if own and generator.random() < rot:
            path = generator.choice(own)
            before, self.files[path] = self.files[path], _torn(self.files[path], generator)
            self.is_damaged = self.is_damaged or before != self.files[path]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def is_sparks(path: str) -> bool:
    """Return whether it is Spark that writes a file of a checkpoint."""
    return path.split("/")[2] in {"offsets", "commits", "metadata"}


def _torn(content: bytes, generator: random.Random) -> bytes:
    """Return a content that a file may have after a loss of power."""
    length = generator.randrange(len(content) + 1)
    return generator.choice(
        [
            content,
            content[:length],
            content.rpartition(b"\n")[0],
            bytes(len(content)),
            content[:length].ljust(len(content), b"\0"),
        ]
    )


@attrs.frozen
class _File:
    """A file that is being written."""

    system: LocalSystem
    path: str

    def write(self, content: bytes) -> None:
        """Write all of it."""
        self.system.disk.create(self.path, content)
        self.system.chaos.step()

    def flush(self) -> None:
        """Hand it to the system."""

    def fileno(self) -> str:
        """Return what the system knows it by."""
        return self.path


@attrs.frozen
class LocalSystem:
    """A replacement of the module ``os`` for files."""

    disk: Disk
    chaos: Chaos
    O_RDONLY = os.O_RDONLY

    def open(self, path: LocalPath, flags: int) -> str:
        """Open a folder."""
        return path.path

    def close(self, descriptor: str) -> None:
        """Close a folder."""

    def fsync(self, descriptor: str) -> None:
        """Put a file or a folder on the disk."""
        self.disk.sync(descriptor)
        self.chaos.step()

    def geteuid(self) -> int:
        """Return the user of the process, who is not root."""
        return 1

    def chmod(self, descriptor: str, mode: int) -> None:
        """Change the access rights of a file, which all may read and write."""


@attrs.frozen
class LocalPath:
    """A path on the disk, in the place of ``pathlib.Path``."""

    system: LocalSystem
    path: str

    def __truediv__(self, name: str) -> LocalPath:
        return LocalPath(self.system, f"{self.path}/{name}")

    @property
    def parent(self) -> LocalPath:
        """The folder that it is in."""
        return LocalPath(self.system, _parent(self.path))

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return self.path.count("/") < 2 or self.system.disk.has_folder(self.path)

    def stat(self) -> os.stat_result:
        """Return the facts of a file or folder, which are those of all others, too."""
        if not (self.is_dir() or self.path in self.system.disk.files):
            raise FileNotFoundError(self.path)
        return os.stat_result([stat.S_IFREG | 0o777, *[0] * 9])

    def lstat(self) -> os.stat_result:
        """Return the same: there are no links."""
        return self.stat()

    def mkdir(self, *, exist_ok: bool) -> None:
        """Create a folder."""
        if not exist_ok:
            raise OSError(errno.EEXIST, self.path)
        self.system.disk.create_folder(self.path)

    @contextmanager
    def open(self, mode: str) -> Iterator[_File]:
        """Create a file."""
        self.system.chaos.step()
        yield _File(self.system, self.path)

    def replace(self, target: LocalPath) -> None:
        """Let it take the place of another file."""
        self.system.disk.rename(self.path, target.path)
        self.system.chaos.step()


class MemoryFolder(Folder):
    """A folder on such a disk, written by the steps that the real one takes."""

    def __init__(self, location: str, disk: Disk, chaos: Chaos) -> None:
        object.__setattr__(self, "location", location)
        self.__dict__.update(disk=disk, chaos=chaos, kept=None, _guard=None)

    @property
    def _disk(self) -> Disk:
        return cast("Disk", self.__dict__["disk"])

    @property
    def _chaos(self) -> Chaos:
        return cast("Chaos", self.__dict__["chaos"])

    def child(self, name: str) -> MemoryFolder:
        """Return a folder inside this one."""
        return MemoryFolder(f"{self.location}/{name}", self._disk, self._chaos)

    def names(self) -> list[str]:
        """List what is directly inside."""
        start = f"{self.location}/"
        inside = (path[len(start) :] for path in self._disk.files if path.startswith(start))
        return sorted({name.partition("/")[0] for name in inside})

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return f"{self.location}/{name}" in self._disk.files

    def open(self, name: str) -> BinaryIO:
        """Open a file."""
        return io.BytesIO(self.read(name))

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        try:
            return self._disk.files[f"{self.location}/{name}"]
        except KeyError:
            raise FileNotFoundError(name) from None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or die on the way."""
        with self._system() as path:
            cast("Any", filesystem)._write_locally(path, name, content)

    def move(self, name: str, target: str) -> None:
        """Rename a file, or die on the way."""
        if not self.has(name):
            raise FileNotFoundError(name)
        with self._system() as path:
            cast("Any", filesystem)._move_locally(path / name, path / target)

    @contextmanager
    def _system(self) -> Iterator[LocalPath]:
        """Let the steps of the real folder happen here; yield its path."""
        system = LocalSystem(self._disk, self._chaos)
        with mock.patch.object(filesystem, "os", system):
            yield LocalPath(system, self.location)

    def sync(self, name: str) -> None:
        """Put a file and the folder's names on the disk."""
        if self.has(name):
            self._disk.sync(f"{self.location}/{name}")
            self._chaos.step()
            self._disk.sync(self.location)
            self._chaos.step()

    def sync_names(self) -> None:
        """Put the folder's names on the disk."""
        self._disk.sync(self.location)
        self._chaos.step()

    def remove(self, name: str) -> None:
        """Delete a file."""
        self._chaos.step()
        self._disk.remove(f"{self.location}/{name}")
        self._chaos.step()

    def remove_all(self) -> None:
        """Delete the files one by one: a crash may leave some."""
        start = f"{self.location}/"
        for path in [path for path in self._disk.files if path.startswith(start)]:
            self._disk.remove(path)
            self._chaos.step()
