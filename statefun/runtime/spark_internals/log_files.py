# SPDX-License-Identifier: Apache-2.0
"""The files that Spark writes into the checkpoint of a streaming query.

From ``HDFSMetadataLog``, ``OffsetSeqLog``, ``CommitLog`` and ``StreamMetadata`` of Spark 4.2.0. ``offsets/N``
has the offsets of micro-batch N, and ``commits/N`` marks it as done. Both are created atomically,
by a rename from a name that begins with a dot; Spark keeps the newest hundred. The first line of each
is a version. In ``offsets/N``, a line of JSON about the batch follows, and then a line for each source,
in the order of the query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from statefun.sdk.errors import CheckpointError

COMMITS = "commits"
OFFSETS_FOLDER = "offsets"
METADATA = "metadata"

_OFFSETS_VERSION = "v1"
_COMMIT_VERSIONS = ("v1", "v2")
# Spark's line for a source that has not had any data yet.
_NO_OFFSET = "-"


def newest_batch(names: Iterable[str]) -> int:
    """Return the newest batch of a log by the names of its files, or -1."""
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def query_id(content: bytes, file: str) -> str:
    """Return the id of the query from the metadata.

    Raises:
        CheckpointError: if ``file`` has another form.
    """
    try:
        return str(json.loads(content)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise _unlike(file, error) from error


def check_commit(content: bytes, file: str) -> None:
    """Check that the file of a committed batch is whole.

    Raises:
        CheckpointError: if it is not whole.
    """
    try:
        version, metadata = content.decode().split("\n")
        if version not in _COMMIT_VERSIONS or not isinstance(json.loads(metadata), dict):
            raise ValueError(f"{version} {metadata}")
    except ValueError as error:
        raise CheckpointError(
            f"{file} is not what Spark writes ({error}); restore the checkpoint from a copy"
        ) from error


@attrs.frozen
class BatchOffsets:
    """The content of ``offsets/N``."""

    head: Sequence[str]
    """The lines before the offsets."""
    sources: Sequence[dict[str, Any] | None]
    """The end offset of each source; None for a source that has not had any data yet."""

    @classmethod
    def decode(cls, content: bytes, file: str) -> BatchOffsets:
        """Read a file of Spark.

        Raises:
            CheckpointError: if ``file`` has another form.
        """
        try:
            lines = content.decode().split("\n")
            if lines[0] != _OFFSETS_VERSION:
                raise CheckpointError(f"{file} has the format {lines[0]}, not {_OFFSETS_VERSION}")
            return cls(lines[:2], [_offset(line) for line in lines[2:]])
        except ValueError as error:
            raise _unlike(file, error) from error

    @property
    def state_partitions(self) -> int | None:
        """The number of partitions of the state; None if the file does not have it."""
        try:
            return int(json.loads(self.head[1])["conf"]["spark.sql.shuffle.partitions"])
        except (IndexError, ValueError, KeyError, TypeError):
            return None

    def encode(self) -> bytes:
        """Return the content in Spark's form."""
        lines = [_NO_OFFSET if each is None else json.dumps(each) for each in self.sources]
        return "\n".join([*self.head, *lines]).encode()


def _offset(line: str) -> dict[str, Any] | None:
    if line == _NO_OFFSET:
        return None
    offset = json.loads(line)
    if not isinstance(offset, dict):
        raise ValueError(f"{line} is no offset")  # noqa: TRY004 - the error of malformed JSON
    return offset


def _unlike(file: str, error: Exception) -> CheckpointError:
    return CheckpointError(f"{file} is not what Spark writes: {error}")
