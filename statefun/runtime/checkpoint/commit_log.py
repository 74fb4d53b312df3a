# SPDX-License-Identifier: Apache-2.0
"""The progress of a checkpoint's streaming query: reads Spark's logs, and rewrites the newest offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import attrs

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark_internals.log_files import (
    COMMITS,
    METADATA,
    OFFSETS_FOLDER,
    BatchOffsets,
    check_commit,
    newest_batch,
    query_id,
)
from statefun.sdk.errors import CheckpointError


class CommitLog:
    """The committed and planned batches of the query in ``checkpoint``."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._commits = checkpoint.child(COMMITS)
        self._offsets = checkpoint.child(OFFSETS_FOLDER)

    def newest(self) -> int:
        """Return the newest committed batch, or -1."""
        return newest_batch(self._commits.names())

    def planned(self) -> int:
        """Return the newest planned batch, or -1."""
        return newest_batch(self._offsets.names())

    def has(self, batch: int) -> bool:
        """Return whether ``batch``, which is one of the newest, is committed."""
        return self._commits.has(str(batch))

    def sync(self, batch: int) -> None:
        """Flush Spark's files of ``batch`` to the disk, which Spark does not do."""
        self._checkpoint.sync(METADATA)
        self._offsets.sync(str(batch))
        self._commits.sync(str(batch))

    def settled(self, source: int) -> dict[str, Any] | None:
        """Return the position up to which a source is read for good: even a loss of power does not undo it.

        Args:
            source: its number in the query.

        Returns:
            The end offset of the newest committed batch; None if there is none.
        """
        newest = self.newest()
        if newest < 0:
            return None
        self.sync(newest)
        return self.end_offsets(newest)[source]

    def finish_rewriting(self) -> None:
        """Finish the rewriting of offsets that a crash has interrupted; Spark would not find the files."""
        self._offsets.finish_replacing()

    def is_fresh(self) -> bool:
        """Return whether no batch was ever planned, so that starting offsets still count."""
        return self.planned() < 0

    def check(self, batch: int) -> None:
        """Check that the commit file of ``batch`` is complete; -1 stands for no batch.

        Raises:
            CheckpointError: if it is not.
        """
        if batch >= 0:
            check_commit(self._commits.read(str(batch)), f"{self._commits.shown}/{batch}")

    def check_sources(self, count: int) -> None:
        """Check that the offsets of the newest batches are complete.

        Args:
            count: the number of sources; the last one is the feedback source.

        Raises:
            CheckpointError: if they lack a source.
        """
        for batch in {max(self.newest(), 0), self.planned()}:
            offsets = self.end_offsets(batch)
            if len(offsets) != count or offsets[-1] is None:
                raise CheckpointError(
                    f"{self._offsets.shown}/{batch} has {len(offsets)} sources instead of "
                    f"{count}; restore the checkpoint from a copy"
                )

    def query_id(self) -> str:
        """Return the id that Spark gave the checkpoint; empty before its first start.

        Raises:
            CheckpointError: if the checkpoint's metadata cannot be read.
        """
        try:
            content = self._checkpoint.read(METADATA)
        except FileNotFoundError:
            return ""
        return query_id(content, f"{self._checkpoint.shown}/{METADATA}")

    def offsets_file(self, batch: int) -> str:
        """Return the location of the file with the offsets of ``batch``."""
        return f"{self._offsets.shown}/{batch}"

    def end_offsets(self, batch: int) -> list[dict[str, Any] | None]:
        """Return the end offsets of ``batch``: one per source, in the order of the query.

        Kafka sources have the next offset by topic and partition. None stands for a source that has
        not had any data yet.

        Raises:
            CheckpointError: if the log has no such batch, or its file cannot be read.
        """
        return [*self._read(batch).sources]

    def state_partitions(self) -> int | None:
        """Return the number of partitions of the state; None if no batch was planned yet.

        Raises:
            CheckpointError: if its file cannot be read.
        """
        planned = self.planned()
        return None if planned < 0 else self._read(planned).state_partitions

    def rewrite_offsets(self, stops: Sequence[Mapping[str, Mapping[str, int]] | None]) -> None:
        """Cut back the offsets of the newest committed batch, and of the planned one if there is one.

        Args:
            stops: by source, the offsets by topic and partition to cut back to; partitions that
                are not listed are removed. None leaves a source as it is.
        """
        newest = self.newest()
        for batch in (newest, newest + 1):
            if self._offsets.has(str(batch)):
                read = self._read(batch)
                sources = [
                    offset if stop is None or offset is None else within_stops(offset, stop)
                    for offset, stop in zip_longest(read.sources, stops)
                ]
                self._offsets.write(str(batch), attrs.evolve(read, sources=sources).encode())

    def _read(self, batch: int) -> BatchOffsets:
        try:
            content = self._offsets.read(str(batch))
        except FileNotFoundError:
            raise CheckpointError(f"{self._offsets.shown} has no batch {batch}") from None
        return BatchOffsets.decode(content, self.offsets_file(batch))


def within_stops(
    read: Mapping[str, Mapping[str, int]], stops: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the read offsets, capped at the stop positions.

    >>> within_stops({"users": {"0": 9, "1": 2}, "new": {"0": 3}}, {"users": {"0": 5, "1": 5}})
    {'users': {'0': 5, '1': 2}}
    """
    return {
        topic: {
            number: min(offset, stops[topic][number])
            for number, offset in partitions.items()
            if number in stops[topic]
        }
        for topic, partitions in read.items()
        if topic in stops
    }
