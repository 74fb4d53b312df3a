# SPDX-License-Identifier: Apache-2.0
"""A durable log in a folder of the checkpoint: the entries of micro-batches, and snapshots that replace them."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

M = TypeVar("M", bound=Message)

_SNAPSHOT = ".all"


class BatchLog:
    """The files of one log.

    A file ``<batch>`` has what a batch has added; ``<batch>.all`` is a snapshot, which replaces the files that
    exist when it is written. Readers use all files of the folder, whatever their numbers are: batches are added
    in any order, and an entry that is no longer needed does no harm.
    Only one object may write; others may read at any time, in other threads or processes.

    Args:
        checkpoint: the query's checkpoint.
        name: the name of the log's folder.
    """

    def __init__(self, checkpoint: Folder, name: str) -> None:
        self._checkpoint = checkpoint
        self._name = name
        self._folder = checkpoint.child(name)
        self.additions = 0
        """The number of files that the next snapshot replaces, besides an earlier snapshot."""

    def exists(self) -> bool:
        """Return whether the log has any file."""
        return bool(self._folder.names())

    def load(self, kind: type[M]) -> list[M]:
        """Return the content of each file, as messages of type ``kind``.

        Raises:
            CheckpointError: if a file is damaged.
        """
        while True:
            names = self._folder.names()
            try:
                contents = [
                    self._read(name, kind)
                    for name in names
                    if name.removesuffix(_SNAPSHOT).isdecimal()
                ]
            except FileNotFoundError:
                continue  # a snapshot has just replaced the file
            self.additions = sum(name.isdecimal() for name in names)
            return contents

    def flush(self) -> None:
        """Flush the names of the files to the disk; the object that writes the log calls this before it loads.

        An earlier process may have ended after it named a file, and before the name was on the disk.
        """
        with suppress(FileNotFoundError):
            self._folder.sync_names()

    def add(self, batch: int, content: Message) -> None:
        """Write the entry of a batch."""
        self.additions += 1
        write_framed(self._checkpoint, self._path(str(batch)), content.SerializeToString())

    def replace(self, batch: int, content: Message) -> None:
        """Write a snapshot, which includes the entry of ``batch``, and delete all other files."""
        snapshot = f"{batch}{_SNAPSHOT}"
        old_names = self._folder.names()
        write_framed(self._checkpoint, self._path(snapshot), content.SerializeToString())
        for name in old_names:
            # A crash may have left a snapshot of the same batch, which the new one has replaced.
            if name != snapshot:
                self._folder.remove(name)
        self.additions = 0

    def clear(self) -> None:
        """Delete all files."""
        for name in self._folder.names():
            self._folder.remove(name)
        self.additions = 0

    def _read(self, name: str, kind: type[M]) -> M:
        path = self._path(name)
        content = read_framed(self._checkpoint, path)
        if not content:
            raise damaged(self._checkpoint, path, "it is empty")
        try:
            return kind.FromString(content)
        except DecodeError as error:
            raise damaged(self._checkpoint, path, error) from error

    def _path(self, name: str) -> str:
        return f"{self._name}/{name}"
