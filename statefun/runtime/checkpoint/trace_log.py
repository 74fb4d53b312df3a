# SPDX-License-Identifier: Apache-2.0
"""The trace journal: for each micro-batch, which message has caused which invocation.

Each file in the folder ``traces`` of the checkpoint has the entries of some consecutive micro-batches, and is named
after the first of them. Before a micro-batch with invocations is committed, its entries are added to the newest file,
which is written anew; once that file is large enough, the next micro-batch begins another one. So there are few files,
and all entries of a micro-batch are in one file. If a micro-batch is computed again or dropped, its former entries are
removed. The oldest files are deleted when all files together are too large. Nothing but ``statefun trace`` reads them.
Arrow streams with few entries are mostly headers, which are the same each time: so a file is compressed as a whole,
piece by piece.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from statefun.protocol.runtime_pb2 import Outcome, TraceEntries, TraceFile
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import framed, unframed
from statefun.sdk.errors import CheckpointError

logger = logging.getLogger("statefun")

TRACES = "traces"
"""The name of the folder in a checkpoint."""
FULL = 64 * 1024
"""The size, in bytes, from which on a file gets no further micro-batches."""
_DAMAGES = ValueError, DecodeError, zlib.error
_FEWEST_FILES = 16
"""The number of files within a small limit, so that the deletion of one file removes only a part of the journal."""


class TraceLog:
    """Writes the trace journal of an application.

    Args:
        checkpoint: the query's checkpoint.
        most: the largest size of all files together, in bytes; with 0, no traces are kept.
    """

    def __init__(self, checkpoint: Folder, most: int) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child(TRACES)
        self._most = most
        self._full = min(FULL, most // _FEWEST_FILES)
        self._sizes: dict[int, int] | None = None
        """The sizes of the files by their first micro-batches, from the oldest one on; None before the first use."""
        self._total = 0
        """The sum of these sizes."""
        self._open: int | None = None
        """The first micro-batch of the newest file; None if the next micro-batch begins another one."""
        self._content = b""
        """The content of that file."""
        self._packer = zlib.compressobj()
        self._newest = -1
        """The newest micro-batch that has been added."""

    def add(self, batch: int, entries: TraceEntries) -> None:
        """Write the entries of a micro-batch, and delete the oldest files beyond the limit."""
        if self._sizes is None or batch <= self._newest:
            self.drop(batch)
        self._newest = batch
        if self._most and entries.tasks:
            entries.batch = batch
            self._pack(entries)
            self._write()
        self._keep_limit()

    def drop(self, batch: int) -> None:
        """Take back the entries of a micro-batch that is not committed."""
        self._sizes = dict(sorted(_sizes(self._folder).items()))
        self._total = sum(self._sizes.values())
        self._open = None
        self._remove([first for first in self._sizes if first >= batch])
        if not self._sizes:
            return
        newest = max(self._sizes)
        try:
            content = [*_content(self._checkpoint, newest)]
        except _DAMAGES as error:
            problem = _damaged(self._checkpoint, newest, error)
            logger.warning("traces go on in another file: %s", problem.message)
            return
        kept = [each for each in content if each.batch < batch]
        if len(kept) < len(content) or self._sizes[newest] < self._full:
            for each in kept:
                self._pack(each)
        if len(kept) < len(content):
            self._write()

    def _pack(self, entries: TraceEntries) -> None:
        """Add a micro-batch to the content of the newest file, or begin another file with it."""
        piece = TraceFile(batches=[entries]).SerializeToString()
        # Arrow has compressed the columns of large streams already; each such micro-batch has a file of its own.
        is_large = len(piece) >= FULL
        if self._open is None or is_large:
            self._open, self._content = entries.batch, b""
            self._packer = zlib.compressobj(0 if is_large else 1)
        self._content += self._packer.compress(piece) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def _write(self) -> None:
        """Create the newest file, or replace it by one with more micro-batches."""
        first = self._open
        if first is None or self._sizes is None:
            return
        content = framed(f"{TRACES}/{first}", self._content)
        self._folder.write(f"{first}", content)
        self._total += len(content) - self._sizes.get(first, 0)
        self._sizes[first] = len(content)
        if len(content) >= self._full:
            self._open = None

    def _keep_limit(self) -> None:
        total, oldest = self._total, []
        for first, size in (self._sizes or {}).items():
            if total <= self._most:
                break
            oldest.append(first)
            total -= size
        self._remove(oldest)

    def _remove(self, files: Sequence[int]) -> None:
        if files:
            self._folder.remove_several([str(first) for first in files])
        for first in files:
            if self._sizes is not None:
                self._total -= self._sizes.pop(first)
            if self._open == first:
                self._open = None


def trace_entries(outcomes: Sequence[Outcome], time: int) -> TraceEntries:
    """Return the entries of all tasks of a micro-batch, given the present time in milliseconds since the epoch."""
    return TraceEntries(
        time=time,
        tasks=[outcome.traces for outcome in outcomes if outcome.traces],
        left_out=sum(outcome.traces_left_out for outcome in outcomes),
    )


def read_traces(checkpoint: Folder, since: int | None = None) -> Iterator[list[TraceEntries]]:
    """Yield for each file the entries of its committed micro-batches, in their order.

    Args:
        checkpoint: the query's checkpoint.
        since: the first micro-batch to read; the oldest file then comes first. None for all, the newest file first.

    Raises:
        CheckpointError: if a file is damaged.
    """
    committed = CommitLog(checkpoint).newest()
    files = sorted(_sizes(checkpoint.child(TRACES)))
    if since is None:
        files.reverse()
    else:
        files = files[max(0, sum(first <= since for first in files) - 1) :]
    for first in files:
        try:
            batches = _read(checkpoint, first)
        except FileNotFoundError:
            continue  # the application has just deleted it
        if found := [each for each in batches if (since or 0) <= each.batch <= committed]:
            yield found


def _read(checkpoint: Folder, first: int) -> Sequence[TraceEntries]:
    try:
        return _content(checkpoint, first)
    except _DAMAGES as error:
        raise _damaged(checkpoint, first, error) from error


def _content(checkpoint: Folder, first: int) -> Sequence[TraceEntries]:
    """Return the content of a file; raises FileNotFoundError, and one of ``_DAMAGES`` if it is damaged."""
    content = unframed(f"{TRACES}/{first}", checkpoint.child(TRACES).read(f"{first}"))
    # Protobuf reads messages one after the other as one message, with the items of all.
    return TraceFile.FromString(zlib.decompressobj().decompress(content)).batches


def _damaged(checkpoint: Folder, first: int, reason: object) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.child(TRACES).shown}/{first} is damaged ({reason}); delete it: only statefun trace needs it"
    )


def _sizes(folder: Folder) -> dict[int, int]:
    return {
        int(name): facts.size
        for name, facts in folder.files().items()
        if name.isdecimal() and name == f"{int(name)}"
    }
