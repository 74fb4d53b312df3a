# SPDX-License-Identifier: Apache-2.0
"""What a run has done, and telling of what it could not do."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta

import attrs

from statefun.protocol.runtime_pb2 import Outcome

logger = logging.getLogger("statefun")

_INTERVAL = timedelta(seconds=10)
"""Between two lines of the log about failures, however many there are."""


@attrs.define
class Summary:
    """What a run has done."""

    batches: int = 0
    invocations: int = 0
    egress_records: int = 0
    """Published by this run, including what an earlier one had left in the outbox.

    Dead letters of failed messages are among them, as functions' records are. Those of refused
    records are not: what functions have sent is either published or ``refused``, and never both.
    """
    skipped: int = 0
    """Messages and records that were left out, as their failure policy says."""
    dead_letters: int = 0
    """Messages and records that went to the dead-letter topic."""
    refused: int = 0
    """Records that a cluster has refused for good, and that are dead letters or left out."""
    retries: int = 0
    """How often a message on which its function had failed was put off."""
    next_timer: datetime | None = None
    """When the next timer is due, a delayed message's or an expiration's, if there are any."""


class FailureLog:
    """Counts what was not handled, and logs it: at once, and then now and then."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._untold = Outcome()
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def add(self, outcome: Outcome) -> None:
        """Take note of what a part of a micro-batch could not do."""
        if not outcome.example:
            return
        with self._lock:
            for name in ("skipped", "dead_letters", "retries"):
                count = getattr(outcome, name)
                setattr(self._summary, name, getattr(self._summary, name) + count)
                setattr(self._untold, name, getattr(self._untold, name) + count)
            self._untold.example = self._untold.example or outcome.example

    def tell(self, *, at_once: bool = False) -> None:
        """Log what was not logged yet, unless that would be too often."""
        if not self._untold.example or not (at_once or time.monotonic() >= self._next):
            return
        with self._lock:
            untold, self._untold = self._untold, Outcome()
        what = {
            "skipped": untold.skipped,
            "to the dead-letter topic": untold.dead_letters,
            "to be tried again": untold.retries,
        }
        counts = ", ".join(f"{count:,} {name}" for name, count in what.items() if count)
        logger.warning("messages not handled: %s; such as: %s", counts, untold.example)
        self._next = time.monotonic() + _INTERVAL.total_seconds()
