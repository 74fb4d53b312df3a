# SPDX-License-Identifier: Apache-2.0
"""The trace journal: for each micro-batch, which message has caused which invocation.

The folder ``traces`` of the checkpoint has a file for each micro-batch with invocations, which is written before the
micro-batch is committed, and replaced if the micro-batch is computed again. The oldest files are deleted when all of
them together are too large. Nothing but ``statefun trace`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import DecodeError

from statefun.protocol.runtime_pb2 import Outcome, TraceEntries
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

TRACES = "traces"
"""The name of the folder in a checkpoint."""


class TraceLog:
    """Writes the trace journal of an application.

    Args:
        checkpoint: the query's checkpoint.
        most: how many bytes all files together have at most; 0 keeps none.
    """

    def __init__(self, checkpoint: Folder, most: int) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child(TRACES)
        self._most = most
        self._sizes: dict[int, int] | None = None
        """The sizes of the files by micro-batch, from the oldest one on; None before the first use."""

    def add(self, batch: int, entries: TraceEntries) -> None:
        """Write the entries of a micro-batch, and delete the oldest files beyond the limit."""
        if self._sizes is None:
            self._sizes = dict(sorted(_sizes(self._folder).items()))
        if self._most and entries.tasks:
            content = entries.SerializeToString()
            write_framed(self._checkpoint, f"{TRACES}/{batch}", content)
            self._sizes.pop(batch, None)
            self._sizes[batch] = len(content)
        elif batch in self._sizes:  # of an earlier computation
            self._remove(batch)
        while sum(self._sizes.values()) > self._most:
            self._remove(next(iter(self._sizes)))

    def _remove(self, batch: int) -> None:
        self._folder.remove(str(batch))
        if self._sizes is not None:
            del self._sizes[batch]


def trace_entries(outcomes: Sequence[Outcome], time: int) -> TraceEntries:
    """Return the entries of all tasks of a micro-batch, given the present time in milliseconds since the epoch."""
    return TraceEntries(
        time=time,
        tasks=[outcome.traces for outcome in outcomes if outcome.traces],
        left_out=sum(outcome.traces_left_out for outcome in outcomes),
    )


def read_traces(checkpoint: Folder, since: int | None = None) -> Iterator[tuple[int, TraceEntries]]:
    """Yield each micro-batch with its entries, the newest one first.

    Args:
        checkpoint: the query's checkpoint.
        since: begin with this micro-batch instead, and go on to the newest one; None to begin with the newest one.

    Raises:
        CheckpointError: if a file is damaged.
    """
    batches = _sizes(checkpoint.child(TRACES))
    for batch in sorted(batches, reverse=since is None):
        if since is not None and batch < since:
            continue
        path = f"{TRACES}/{batch}"
        try:
            content = read_framed(checkpoint, path)
        except FileNotFoundError:
            continue  # the application has just deleted it
        try:
            yield batch, TraceEntries.FromString(content)
        except DecodeError as error:
            raise damaged(checkpoint, path, error) from error


def _sizes(folder: Folder) -> dict[int, int]:
    return {int(name): facts.size for name, facts in folder.files().items() if name.isdecimal()}
