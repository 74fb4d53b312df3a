# SPDX-License-Identifier: Apache-2.0
"""The marker of a lane: how far an egress is published, and by which run."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.sdk.errors import CheckpointError

OTHER_CHECKPOINT = (
    "Continue with that other checkpoint, or start with a new checkpoint in another folder"
)
"""What to do if a run with another checkpoint publishes to the same lanes."""


class Marker(NamedTuple):
    """How far a lane is published, and which run owns the lane."""

    batch: int
    """The number of the last published batch; -1 if no batch is published."""
    records: int
    """How many of the lane's records in that batch are published."""
    digest: bytes
    """The digest of that batch's manifest."""
    publisher: str
    """The id of the run that has published the batch."""
    owner: str
    """The id of the run that has claimed the lane."""

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Marker:
        """Decode a marker that :meth:`to_json` has encoded.

        >>> marker = Marker(7, 0, b"digest", "this run", "this run")
        >>> Marker.of_json(marker.to_json()) == marker
        True
        """
        return cls(**{**content, "digest": bytes.fromhex(content["digest"])})

    def to_json(self) -> dict[str, Any]:
        """Encode the marker as a dict that can be written as JSON."""
        return {**self._asdict(), "digest": self.digest.hex()}

    def is_ours(self, publishers: Container[str], commit_log: CommitLog, outbox: Outbox) -> bool:
        """Return whether runs of this checkpoint have published up to the marker.

        Args:
            publishers: the ids of the checkpoint's runs.
            commit_log: the micro-batches that are committed.
            outbox: the effects of micro-batches.

        Returns:
            True if one of these runs has, or nothing is published; False if a run with a copy of this checkpoint
            has published the marker's batch, and the same batch is in this checkpoint.

        Raises:
            CheckpointError: if another checkpoint's records are published, so that this one must not go on.
        """
        newest = commit_log.newest()
        if self.batch > newest:
            raise CheckpointError(
                f"batch {self.batch} is published, but the newest batch of this checkpoint is "
                f"{newest}: this checkpoint is an older copy of another checkpoint, or was copied while its "
                f"application ran. {OTHER_CHECKPOINT}, or publish those records once more: statefun restore "
                "--records-may-repeat makes a checkpoint from a snapshot that does so"
            )
        if not self.publisher or self.publisher in publishers:
            return True
        staged = outbox.staged(self.batch)
        if staged is not None and staged.digest == self.digest:
            return False
        raise CheckpointError(
            f"a run with a copy of this checkpoint has published its own batch {self.batch}, "
            f"which differs from the batch {self.batch} of this checkpoint. {OTHER_CHECKPOINT}"
        )
