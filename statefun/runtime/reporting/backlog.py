# SPDX-License-Identifier: Apache-2.0
"""Counts the messages between functions that are staged and not delivered yet."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.ingress.feedback_offset import feedback_offset


class Backlog:
    """The number of staged messages that no committed micro-batch has delivered yet.

    A delayed message counts until it has reached the bucket in which it waits for its time.

    Args:
        checkpoint: the checkpoint, which also has undelivered messages of earlier runs.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._log = CommitLog(checkpoint)
        self._lock = threading.Lock()
        outbox, newest, before = Outbox(checkpoint), self._log.newest(), self._delivered()
        self._staged = {
            batch: sum(segment.messages.records for segment in manifest.segments)
            for batch in outbox.batches()
            if before < batch <= newest and (manifest := outbox.manifest(batch)) is not None
        }

    def staged(self, batch: int, outcomes: Sequence[Outcome]) -> None:
        """Add the number of messages that a micro-batch sends."""
        count = sum(outcome.segment.messages.records for outcome in outcomes)
        with self._lock:
            self._staged[batch] = count

    def count(self) -> int:
        """Return the number of messages that no committed micro-batch has delivered."""
        done = self._delivered()
        with self._lock:
            self._staged = {
                batch: count for batch, count in self._staged.items() if batch > done and count
            }
            return sum(self._staged.values())

    def _delivered(self) -> int:
        return feedback_offset(self._log, self._log.newest()).batch
