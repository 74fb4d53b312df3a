# SPDX-License-Identifier: Apache-2.0
"""The form of the files that Spark writes into the checkpoint of a streaming query.

Based on ``HDFSMetadataLog``, ``OffsetSeqLog``, ``CommitLog`` and ``StreamMetadata`` of Spark 4.2.0.
``offsets/N`` has the offsets of micro-batch N, and ``commits/N`` marks it as committed. Both files are
created atomically, by a rename from a name that begins with a dot; Spark keeps the files of the newest
hundred batches. The first line of each file is a version. In ``offsets/N``, a line of JSON about the batch
follows, and then a line for each source, in the order of the query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from statefun.sdk.errors import CheckpointError

COMMITS = "commits"
OFFSETS_FOLDER = "offsets"
METADATA = "metadata"
RUN_OF_COMMIT = "statefunRun"
"""The field of a commit with the id of the run that has committed the batch, in stores; Spark ignores it."""

_OFFSETS_VERSION = "v1"
_COMMIT_VERSIONS = ("v1", "v2")
# Spark's line for a source that has not had any data yet.
_NO_OFFSET = "-"


def newest_batch(names: Iterable[str]) -> int:
    """Return the newest batch in a log, given the names of its files; -1 if the log has no batch."""
    return max(batches_in(names), default=-1)


def batches_in(names: Iterable[str]) -> list[int]:
    """Return the numbers of the batches in a log, in order, given the names of its files."""
    return sorted(int(name) for name in names if name.isdecimal())


def query_id(content: bytes, file: str) -> str:
    """Return the id of the query from the content of the file ``metadata``.

    Raises:
        CheckpointError: if the file does not have Spark's form.
    """
    try:
        return str(json.loads(content)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise _unlike(file, error) from error


def check_commit(content: bytes, file: str) -> None:
    """Check that the file of a committed batch is complete.

    Raises:
        CheckpointError: if the file is not complete.
    """
    try:
        version, metadata = content.decode().split("\n")
        if version not in _COMMIT_VERSIONS or not isinstance(json.loads(metadata), dict):
            raise ValueError(f"unknown version {version}, or no JSON object: {metadata}")
    except ValueError as error:
        raise CheckpointError(
            f"{file} does not have the form in which Spark writes it ({error}); restore the checkpoint from a copy"
        ) from error


def run_of_commit(content: bytes, file: str) -> str:
    """Return the id of the run that has written the file of a committed batch; empty if the file does not name it.

    Raises:
        CheckpointError: if the file is not complete.
    """
    check_commit(content, file)
    return str(json.loads(content.decode().split("\n")[1]).get(RUN_OF_COMMIT, ""))


@attrs.frozen
class BatchOffsets:
    """The content of a file ``offsets/N``: the offsets of micro-batch N."""

    head: Sequence[str]
    """The lines before the offsets: the version, and JSON about the batch."""
    sources: Sequence[dict[str, Any] | None]
    """The end offset of each source; None for a source that has not had any data yet."""

    @classmethod
    def decode(cls, content: bytes, file: str) -> BatchOffsets:
        """Decode the content of a file ``offsets/N``; ``file`` is its name for errors.

        Raises:
            CheckpointError: if the file does not have Spark's form.
        """
        try:
            lines = content.decode().split("\n")
            if lines[0] != _OFFSETS_VERSION:
                raise CheckpointError(
                    f"{file} must have the format {_OFFSETS_VERSION} in its first line, but has {lines[0]!r}; "
                    "restore the checkpoint from a copy"
                )
            return cls(lines[:2], [_offset(line) for line in lines[2:]])
        except ValueError as error:
            raise _unlike(file, error) from error

    @property
    def state_partitions(self) -> int | None:
        """Into how many partitions the state is divided; None if the file does not say so."""
        try:
            return int(self.settings["spark.sql.shuffle.partitions"])
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the query that a checkpoint fixes, by their keys; empty if the file has none."""
        try:
            conf = json.loads(self.head[1])["conf"]
        except (IndexError, ValueError, KeyError, TypeError):
            return {}
        return conf if isinstance(conf, dict) else {}

    def encode(self) -> bytes:
        """Encode the offsets in Spark's form."""
        lines = [_NO_OFFSET if each is None else json.dumps(each) for each in self.sources]
        return "\n".join([*self.head, *lines]).encode()


def _offset(line: str) -> dict[str, Any] | None:
    if line == _NO_OFFSET:
        return None
    offset = json.loads(line)
    if not isinstance(offset, dict):
        raise ValueError(f"an offset must be a JSON object, not {line}")  # noqa: TRY004 - the error of malformed JSON
    return offset


def _unlike(file: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{file} does not have the form in which Spark writes it ({error}); restore the checkpoint from a copy"
    )
