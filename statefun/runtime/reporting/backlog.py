# SPDX-License-Identifier: Apache-2.0
"""Counts the messages that are not handled yet: those under way between functions, and those that wait at their addresses."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.ingress.holding import WaitingGauge


class Backlog:
    """The number of messages that no committed micro-batch has handled yet.

    These are the staged messages that are not delivered, the messages of long calls, and the delivered messages that
    wait for the end of a long call or for an endpoint. A delayed message counts until it has reached the bucket in
    which it waits for its time.

    Args:
        checkpoint: the checkpoint, which also has undelivered messages of earlier runs.
        waiting_gauge: counts the messages that wait in the states of their addresses.
    """

    def __init__(self, checkpoint: Folder, waiting_gauge: WaitingGauge) -> None:
        self._waiting_gauge = waiting_gauge
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
        """Return the number of messages that no committed micro-batch has handled."""
        done = self._delivered()
        with self._lock:
            self._staged = {
                batch: count for batch, count in self._staged.items() if batch > done and count
            }
            return sum(self._staged.values()) + self._waiting_gauge.messages

    def _delivered(self) -> int:
        return feedback_offset(self._log, self._log.newest()).batch
