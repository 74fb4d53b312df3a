# SPDX-License-Identifier: Apache-2.0
"""Reads the files of a checkpoint that change, as they are after one micro-batch, also while the application runs.

The application replaces or deletes some files with each micro-batch. So the files are read into memory, and what counts
is a reading during which no micro-batch was committed, and no start has changed how far the ingresses were read. Another
attempt reads only what may have changed since the last one: that takes much less time than a micro-batch, however long
the first attempt takes and however slow the snapshot's disk is.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath

import attrs

from statefun.inspect.copied_files import (
    OUTBOX,
    STATE,
    below,
    copy_files,
    folder_and_name,
    is_permanent,
    read_path,
)
from statefun.inspect.snapshot_files import belongs
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import INGRESSES, STOPS
from statefun.runtime.checkpoint.outbox import MANIFEST
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE
from statefun.runtime.checkpoint.trace_log import TRACES
from statefun.runtime.spark_internals.log_files import (
    COMMITS,
    METADATA,
    OFFSETS_FOLDER,
    check_commit,
)
from statefun.sdk.errors import CheckpointError

_ATTEMPTS = 200
"""How often the files are read until no micro-batch is committed meanwhile."""
_PAUSE = 0.02
"""The time, in seconds, before the files are read again."""


@attrs.frozen
class _Look:
    """The facts about a checkpoint at one moment: files that are read between two equal ones fit together."""

    batch: int
    """The newest committed micro-batch."""
    start: tuple[bytes, bytes | None]
    """The files of ingresses and of stop offsets. A start that changes Spark's offsets names the new ones there, until
    they are in the log: so with the same two files, the next start can finish the change, however far it has come."""

    @classmethod
    def at(cls, checkpoint: Folder) -> _Look:
        """Look at a checkpoint; raises FileNotFoundError if it has no ingresses."""
        batch, stops = CommitLog(checkpoint).newest(), None
        with suppress(FileNotFoundError):
            stops = checkpoint.read(STOPS)
        return cls(batch, (checkpoint.read(INGRESSES), stops))


@attrs.frozen
class Captured:
    """The files of a checkpoint as they are after one micro-batch, but for those of the states."""

    batch: int
    """The number of the micro-batch."""
    contents: dict[str, bytes]
    """The contents of the files that may change, by path."""
    effects: dict[str, int]
    """The sizes of the files with large effects, by path; they are copied already."""


class ChangingFiles:
    """Reads the changing files of a checkpoint, as often as the caller needs newer ones.

    Args:
        checkpoint: the checkpoint.
        target: the folder of the snapshot, to which large effects are copied.
    """

    def __init__(self, checkpoint: Folder, target: Folder) -> None:
        self._checkpoint = checkpoint
        self._target = target
        self._look: _Look | None = None
        self._settled: dict[str, bytes] = {}
        """The contents of files that change only when a start changes the offsets, by path."""
        self._effects = below(target, OUTBOX)
        """The sizes of the files with large effects that are in the target."""

    def capture(self) -> Captured:
        """Return the files as they are after the newest committed micro-batch.

        Raises:
            CheckpointError: if the application commits micro-batches faster than the files can be read, or files that a
                start needs are missing.
        """
        for _ in range(_ATTEMPTS):
            # A file that was deleted after it was listed is as good as another micro-batch.
            with suppress(FileNotFoundError):
                look = _Look.at(self._checkpoint)
                if self._look is None or self._look.start != look.start:
                    self._settled = {}
                self._look = look
                captured = self._read(look.batch)
                if _Look.at(self._checkpoint) == look:
                    self._check(captured)
                    return captured
            time.sleep(_PAUSE)
        raise CheckpointError(
            "the application commits its micro-batches faster than the files of one can be copied from "
            f"{self._checkpoint.shown}: stop it for the time of the snapshot"
        )

    def _read(self, batch: int) -> Captured:
        """Read the files, the outbox first.

        Before a batch is deleted from the outbox, its timers are in their log, and its records are published: so if the
        outbox lacks a batch, the files that are read later have its effects.
        """
        outbox = below(self._checkpoint, OUTBOX)
        needed = [path for path in outbox if belongs(path, batch)]
        effects = {path: outbox[path] for path in needed if is_permanent(path)}
        new = {path: size for path, size in effects.items() if self._effects.get(path) != size}
        self._effects.update(copy_files(self._checkpoint, self._target, new))
        contents = self._contents(path for path in needed if path not in effects)
        contents |= self._contents(path for path in self._others() if belongs(path, batch))
        return Captured(batch, contents, {path: self._effects[path] for path in effects})

    def _others(self) -> Iterator[str]:
        """Yield the paths of all files but those of the outbox, of states and of traces."""
        for name, facts in self._checkpoint.entries().items():
            if facts is not None:
                yield name
            elif name not in {OUTBOX, STATE, TRACES}:
                yield from below(self._checkpoint, name)

    def _contents(self, paths: Iterable[str]) -> dict[str, bytes]:
        contents = {}
        for path in paths:
            content = self._settled.get(path)
            if content is None:
                content = self._content(path)
                if _is_settled(path):
                    self._settled[path] = content
            contents[path] = content
        return contents

    def _content(self, path: str) -> bytes:
        if path == PLAYGROUND_FILE and self._checkpoint.is_local:
            folder, name = folder_and_name(self._checkpoint, path)
            return _database(Path(folder.location) / name)
        return read_path(self._checkpoint, path)

    def _check(self, captured: Captured) -> None:
        needed = (
            METADATA,
            f"{OFFSETS_FOLDER}/{captured.batch}",
            f"{COMMITS}/{captured.batch}",
        )
        for path in needed:
            if path not in captured.contents:
                raise CheckpointError(
                    f"checkpoint {self._checkpoint.shown} has lost its file {path}, without which no application goes on "
                    "with a copy; an earlier snapshot is as it was: restore the checkpoint from it"
                )
        commit = needed[-1]
        check_commit(captured.contents[commit], f"{self._checkpoint.shown}/{commit}")


def _is_settled(path: str) -> bool:
    """Return whether a file of a committed micro-batch stays as it is until a start, or until it is deleted."""
    head, _, rest = path.partition("/")
    if head == OUTBOX:
        return PurePosixPath(path).name.startswith(MANIFEST)
    return head in {OFFSETS_FOLDER, COMMITS} and rest.isdecimal()


def _database(path: Path) -> bytes:
    """Return a database as of one moment, although the application uses it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(copy)) as backup:
            database.backup(backup)
        return copy.read_bytes()
