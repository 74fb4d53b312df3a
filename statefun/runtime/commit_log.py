# SPDX-License-Identifier: Apache-2.0
"""Reading what Spark has written into the checkpoint of a streaming query.

Files ``commits/N`` and ``offsets/N`` are created atomically; the newest hundred are kept. See
``MicroBatchExecution``, ``CommitLog`` and ``OffsetSeqLog`` in Spark's sources.
"""

from __future__ import annotations

import json
from typing import Any

from statefun.runtime.filesystem import Folder
from statefun.sdk.errors import CheckpointError

# What Spark writes for a source that has not had any data yet.
_NO_OFFSET = "-"


class CommitLog:
    """What the query in ``checkpoint`` has committed."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._commits = checkpoint.child("commits")
        self._offsets = checkpoint.child("offsets")

    def newest(self) -> int:
        """Return the newest committed batch, or -1."""
        return _newest(self._commits)

    def has(self, batch: int) -> bool:
        """Tell whether ``batch``, one of the newest, is committed."""
        return self._commits.has(str(batch))

    def is_fresh(self) -> bool:
        """Tell whether no batch was ever planned: the sources still choose where to start."""
        return _newest(self._offsets) < 0

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

    def end_offsets(self, batch: int) -> list[dict[str, Any] | None]:
        """Return up to where ``batch`` read: one offset per source, in the order of the query.

        Kafka's are the next offset by topic and partition. None stands for a source that has
        not had any data yet.

        Raises:
            CheckpointError: if the log has no such batch or another form.
        """
        file = f"{self._checkpoint.location}/offsets/{batch}"
        try:
            version, *lines = self._offsets.read(str(batch)).decode().split("\n")
            if version != "v1":
                raise CheckpointError(f"{file} has the format {version}, not v1")
            return [None if line == _NO_OFFSET else json.loads(line) for line in lines[1:]]
        except FileNotFoundError:
            raise CheckpointError(
                f"{self._checkpoint.location}/offsets has no batch {batch}"
            ) from None
        except ValueError as error:
            raise CheckpointError(f"{file} is not what Spark writes: {error}") from error


def _newest(log: Folder) -> int:
    return max((int(name) for name in log.names() if name.isdecimal()), default=-1)
