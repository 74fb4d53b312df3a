# SPDX-License-Identifier: Apache-2.0
"""Reads the files that Spark writes into the checkpoint of a streaming query.

Files ``commits/N`` and ``offsets/N`` are created atomically; the newest hundred are kept. See
``MicroBatchExecution``, ``CommitLog`` and ``OffsetSeqLog`` in Spark's sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.errors import CheckpointError

# Spark's line for a source that has not had any data yet.
_NO_OFFSET = "-"
_COMMIT_VERSIONS = ("v1", "v2")


class CommitLog:
    """The committed and planned batches of the query in ``checkpoint``."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._commits = checkpoint.child("commits")
        self._offsets = checkpoint.child("offsets")

    def newest(self) -> int:
        """Return the newest committed batch, or -1."""
        return _newest(self._commits)

    def planned(self) -> int:
        """Return the newest planned batch, or -1."""
        return _newest(self._offsets)

    def has(self, batch: int) -> bool:
        """Tell whether ``batch``, which is one of the newest, is committed."""
        return self._commits.has(str(batch))

    def sync(self, batch: int) -> None:
        """Flush Spark's files of ``batch`` to the disk, which Spark does not do."""
        self._checkpoint.sync("metadata")
        self._offsets.sync(str(batch))
        self._commits.sync(str(batch))

    def is_fresh(self) -> bool:
        """Tell whether no batch was ever planned, so that starting offsets still count."""
        return self.planned() < 0

    def check(self, batch: int) -> None:
        """Check that the file of ``batch``, a committed one if it is not -1, is whole.

        Raises:
            CheckpointError: if it is not.
        """
        if batch < 0:
            return
        try:
            version, metadata = self._commits.read(str(batch)).decode().split("\n")
            if version not in _COMMIT_VERSIONS or not isinstance(json.loads(metadata), dict):
                raise ValueError(f"{version} {metadata}")
        except ValueError as error:
            raise CheckpointError(
                f"{self._commits.location}/{batch} is not what Spark writes ({error}); restore the "
                "checkpoint from a copy"
            ) from error

    def check_sources(self, count: int) -> None:
        """Check that the offsets of the newest batches are whole.

        Args:
            count: the number of sources; the last one is the feedback source.

        Raises:
            CheckpointError: if they are not.
        """
        for batch in {max(self.newest(), 0), self.planned()}:
            offsets = self.end_offsets(batch)
            if len(offsets) != count or offsets[-1] is None:
                raise CheckpointError(
                    f"{self._offsets.location}/{batch} has {len(offsets)} sources instead of "
                    f"{count}; restore the checkpoint from a copy"
                )

    def query_id(self) -> str:
        """Return the id that Spark gave the checkpoint; empty before its first start.

        Raises:
            CheckpointError: if the checkpoint's metadata cannot be read.
        """
        try:
            return str(json.loads(self._checkpoint.read("metadata"))["id"])
        except FileNotFoundError:
            return ""
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self._checkpoint.location}/metadata is not what Spark writes: {error}"
            ) from error

    def offsets_file(self, batch: int) -> str:
        """Return the location of the file with the offsets of ``batch``."""
        return f"{self._checkpoint.location}/offsets/{batch}"

    def end_offsets(self, batch: int) -> list[dict[str, Any] | None]:
        """Return the end offsets of ``batch``: one per source, in the order of the query.

        Kafka sources have the next offset by topic and partition. None stands for a source that has
        not had any data yet.

        Raises:
            CheckpointError: if the log has no such batch or another form.
        """
        _, offsets = self._read(batch)
        return offsets

    def cut_back(self, stops: Sequence[Mapping[str, Mapping[str, int]] | None]) -> None:
        """Lower the offsets of the newest committed batch, and of a planned one, to the stops.

        Args:
            stops: by source, the offsets by topic and partition to cut back to; partitions that
                are not listed are removed. None leaves a source as it is.
        """
        newest = self.newest()
        for batch in (newest, newest + 1):
            if self._offsets.has(str(batch)):
                head, offsets = self._read(batch)
                lines = [
                    offset if stop is None or offset is None else within_stops(offset, stop)
                    for offset, stop in zip_longest(offsets, stops)
                ]
                texts = [_NO_OFFSET if line is None else json.dumps(line) for line in lines]
                self._offsets.write(str(batch), "\n".join([*head, *texts]).encode())

    def _read(self, batch: int) -> tuple[list[str], list[dict[str, Any] | None]]:
        """Return the first lines of a batch's file, and the offsets."""
        file = self.offsets_file(batch)
        try:
            lines = self._offsets.read(str(batch)).decode().split("\n")
            if lines[0] != "v1":
                raise CheckpointError(f"{file} has the format {lines[0]}, not v1")
            offsets = [None if line == _NO_OFFSET else _offset(line) for line in lines[2:]]
        except FileNotFoundError:
            raise CheckpointError(
                f"{self._checkpoint.location}/offsets has no batch {batch}"
            ) from None
        except ValueError as error:
            raise CheckpointError(f"{file} is not what Spark writes: {error}") from error
        return lines[:2], offsets


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


def _offset(line: str) -> dict[str, Any]:
    offset = json.loads(line)
    if not isinstance(offset, dict):
        raise ValueError(f"{line} is no offset")  # noqa: TRY004 - the error of malformed JSON
    return offset


def _newest(log: Folder) -> int:
    return max((int(name) for name in log.names() if name.isdecimal()), default=-1)
