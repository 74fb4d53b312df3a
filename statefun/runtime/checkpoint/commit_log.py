# SPDX-License-Identifier: Apache-2.0
"""Reads the logs that Spark's query keeps in a checkpoint, and rewrites the newest offsets in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import attrs

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged
from statefun.runtime.checkpoint.kept_files import OwnCommits
from statefun.runtime.spark_internals.log_files import (
    COMMITS,
    METADATA,
    OFFSETS_FOLDER,
    BatchOffsets,
    batches_in,
    check_commit,
    newest_batch,
    query_id,
    run_of_commit,
)
from statefun.runtime.spark_internals.store_files import (
    commit_with_ids,
    ids_of_commit,
    unreadable_setting,
)
from statefun.sdk.errors import CheckpointError


class CommitLog:
    """The micro-batches that the query in ``checkpoint`` has planned, and those that it has committed."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._commits = checkpoint.child(COMMITS)
        self._offsets = checkpoint.child(OFFSETS_FOLDER)

    @property
    def _own(self) -> OwnCommits | None:
        """The batches that this process has committed in the present run; None outside of stores."""
        kept = self._checkpoint.kept
        return None if kept is None else kept.own_commits

    def is_own(self, batch: int) -> bool:
        """Return whether the present run is known to have committed ``batch``; always False outside of stores."""
        own = self._own
        return own is not None and own.has(batch)

    def is_only_own(self, batch: int) -> bool:
        """Return whether the present run is known to have committed ``batch``, and no earlier run has planned it."""
        own = self._own
        return own is not None and batch != own.earlier + 1 and own.has(batch)

    def newest(self) -> int:
        """Return the number of the newest committed batch; -1 if no batch is committed."""
        own = self._own
        if own is not None:
            return own.newest()
        return newest_batch(self._commits.names())

    def committed(self) -> list[int]:
        """Return the numbers of the committed batches whose files are still there, in order."""
        return batches_in(self._commits.names())

    def planned(self) -> int:
        """Return the number of the newest planned batch; -1 if no batch is planned."""
        return newest_batch(self._offsets.names())

    def planned_batches(self) -> list[int]:
        """Return the numbers of the planned batches whose offsets Spark has not deleted yet."""
        return batches_in(self._offsets.names())

    def has(self, batch: int) -> bool:
        """Return whether ``batch`` is committed.

        The batch must be one of the newest: Spark deletes the commit files of older batches.
        """
        own = self._own
        if own is not None:
            return batch <= own.newest()
        return self._commits.has(str(batch))

    def author(self, batch: int) -> str | None:
        """Return the id of the run that has committed ``batch``, in a store; elsewhere an empty text.

        Returns:
            None if the batch is not committed, or Spark has deleted its commit file.

        Raises:
            CheckpointError: if the file in a store is not complete.
        """
        own = self._own
        if own is not None and own.has(batch):
            return own.run
        if own is not None and batch > own.earlier and not own.is_to_ask():
            return None
        try:
            content = self._commits.read(str(batch))
        except FileNotFoundError:
            return None
        try:
            run = run_of_commit(content, f"{self._commits.shown}/{batch}")
        except CheckpointError:
            if self._checkpoint.is_store:
                raise
            return ""  # no run is named there, and :meth:`check` reports what is wrong
        if own is not None and run == own.run:
            own.learn(batch)  # the next question must have the same answer
        return run

    def sync(self, batch: int) -> None:
        """Flush the files that Spark has written for ``batch`` to the disk, since Spark does not do so."""
        self._checkpoint.sync(METADATA)
        self._offsets.sync(str(batch))
        self._commits.sync(str(batch))

    def settled(self, source: int) -> dict[str, Any] | None:
        """Return the offset up to which a source was read durably: no crash and no loss of power takes it back.

        Args:
            source: the number of the source in the query.

        Returns:
            The source's end offset in the newest committed batch; None if no batch is committed.
        """
        newest = self.newest()
        if newest < 0:
            return None
        self.sync(newest)
        return self.end_offsets(newest)[source]

    def finish_rewriting(self) -> None:
        """Finish rewriting the files of offsets if a crash has interrupted it, so that Spark finds all of them."""
        self._offsets.finish_replacing()

    def is_fresh(self, source: int | None = None) -> bool:
        """Return whether no batch was ever planned; if so, Spark reads from the starting offsets of the run.

        Args:
            source: the number of a source in the query, to ask whether no batch was planned with this source.
        """
        planned = self.planned()
        return planned < 0 or (source is not None and self.end_offsets(planned)[source] is None)

    def check(self, batch: int) -> None:
        """Check that the commit file of ``batch`` is complete; do nothing for -1, which stands for no batch.

        Raises:
            CheckpointError: if the file is not complete.
        """
        if batch >= 0:
            check_commit(self._commits.read(str(batch)), f"{self._commits.shown}/{batch}")

    def check_sources(self, count: int) -> None:
        """Check that the newest planned batch and the newest committed batch have the offsets of all sources.

        Args:
            count: the number of sources; the last one is the feedback source.

        Raises:
            CheckpointError: if the offsets of a source are missing.
        """
        for batch in {max(self.newest(), 0), self.planned()}:
            offsets = self.end_offsets(batch)
            if len(offsets) != count or offsets[-1] is None:
                raise CheckpointError(
                    f"{self._offsets.shown}/{batch} has the offsets of {len(offsets)} sources, and must have the offsets of "
                    f"{count}; restore the checkpoint from a copy"
                )

    def query_id(self) -> str:
        """Return the id that Spark has given the query of the checkpoint; empty before the query's first start.

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
        """Return the end offsets of ``batch``: one per source, in the order of the query's sources.

        The end offset of a Kafka source is the next offset to read, by topic and partition. None stands for a
        source that has not had any data yet.

        Raises:
            CheckpointError: if Spark's log has no such batch, or its file cannot be read.
        """
        return [*self._read(batch).sources]

    def state_partitions(self, batch: int) -> int | None:
        """Return into how many partitions the state after ``batch`` is divided; None if the batch does not say so.

        Raises:
            CheckpointError: if Spark's log has no such batch, or its file cannot be read.
        """
        return self._read(batch).state_partitions

    def state_ids(self, batch: int) -> Sequence[str]:
        """Return the id of the state's version after ``batch``, by partition.

        Raises:
            FileNotFoundError: if Spark has deleted the commit file of the batch.
            CheckpointError: if the file does not name the versions.
        """
        try:
            return ids_of_commit(self._commits.read(str(batch)))
        except ValueError as error:
            raise damaged(self._checkpoint, f"{COMMITS}/{batch}", error) from error

    def unreadable_setting(self, batch: int) -> str | None:
        """Return a setting of Spark, ``key=value``, due to which only Spark can read the state of ``batch``, or None.

        Raises:
            CheckpointError: if the file with the settings is missing or cannot be read.
        """
        return unreadable_setting(self._read(batch).settings)

    def plan_again(self, batch: int) -> int:
        """Plan a batch without input after the committed ``batch``; return the number of the new batch."""
        self._offsets.write(str(batch + 1), self._read(batch).encode())
        return batch + 1

    def commit(self, batch: int, ids: Sequence[str]) -> None:
        """Commit a batch that :meth:`plan_again` has planned.

        Args:
            batch: the number of the batch.
            ids: the id of the state's version after the batch, by partition.
        """
        former = self._commits.read(str(batch - 1))
        self._commits.write(str(batch), commit_with_ids(former, ids))

    def withdraw(self, batch: int) -> None:
        """Delete the plan of a batch that is not committed; Spark then plans it anew. Call this while no query runs."""
        self._offsets.remove(str(batch))
        self._offsets.sync_names()

    def rewrite_offsets(self, stops: Sequence[Mapping[str, Mapping[str, int]] | None]) -> None:
        """Lower the end offsets of the newest committed batch, and of the batch after it if that one is planned.

        So the next batch reads the records after the lowered offsets.

        Args:
            stops: for each source, the highest offsets that remain, by topic and partition; partitions
                that are not listed are removed. None leaves the offsets of a source as they are.
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

    def rewrite_sources(self, ends: Mapping[int, Sequence[dict[str, Any] | None]]) -> None:
        """Replace the end offsets of batches; call this only while no query uses the checkpoint.

        Args:
            ends: for each batch, the new end offsets of all sources, in the order of the query's sources.
        """
        for batch, sources in ends.items():
            if self._offsets.has(str(batch)):
                self._offsets.write(
                    str(batch), attrs.evolve(self._read(batch), sources=sources).encode()
                )

    def _read(self, batch: int) -> BatchOffsets:
        try:
            content = self._offsets.read(str(batch))
        except FileNotFoundError:
            raise CheckpointError(
                f"{self._offsets.shown} has no file of batch {batch}; restore the checkpoint from a copy"
            ) from None
        return BatchOffsets.decode(content, self.offsets_file(batch))


def overtaken(batch: int) -> CheckpointError:
    """Return the error for a batch that another driver has committed during a run."""
    return CheckpointError(
        f"another driver, or the JVM of an ended driver, has committed batch {batch} to this checkpoint "
        "since this run began; make sure that both have ended, and start again: the next run goes on after "
        "that batch"
    )


def within_stops(
    read: Mapping[str, Mapping[str, int]], stops: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the offsets that were read, each at most as high as the stop position of its partition.

    Partitions without a stop position are left out.

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
