# SPDX-License-Identifier: Apache-2.0
"""The counts of a run, and reports of the messages that it could not handle."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import attrs

from statefun.protocol.runtime_pb2 import Outcome

logger = logging.getLogger("statefun")

_INTERVAL = timedelta(seconds=10)
"""The shortest time between two log lines about failures of one kind."""
_WORD_COUNTS_FOR = timedelta(minutes=10)
"""How much longer a worker's word on an endpoint counts than until it looks again."""


@attrs.define
class Summary:
    """The counts of a run."""

    batches: int = 0
    invocations: int = 0
    egress_records: int = 0
    """Records published by this run, including records that an earlier run left in the outbox.

    They include dead letters of failed messages. They do not include dead letters of refused
    records: a record of a function is either published or ``refused``, never both.
    """
    skipped: int = 0
    """Messages and records that were left out, as their failure policy says."""
    dead_letters: int = 0
    """Messages and records that went to the dead-letter topic."""
    refused: int = 0
    """Records that a cluster has refused for good; they are dead letters or left out."""
    retries: int = 0
    """How often a message was put off for a retry because its function failed."""
    postponed: int = 0
    """How often a message was put off because its endpoint could not be reached."""
    endpoints_down: int = 0
    """The number of endpoints that cannot be reached at present."""
    backlog: int = 0
    """Messages between functions, and to timers, that are under way at present."""
    next_timer: datetime | None = None
    """When the next timer is due, for a delayed message or an expiration; None without timers.

    For a message that waits for minutes or more, it is a little before: 1/64 of the wait at most."""


class FailureLog:
    """Counts messages that were not handled, and logs an example of each kind of failure.

    The first of a kind is logged at once, later ones together.
    """

    def __init__(self, summary: Summary, clock: Callable[[], float] = time.monotonic) -> None:
        self._summary = summary
        self._clock = clock
        self._untold: dict[tuple[str, str], Outcome.Example] = {}
        """By kind, and by what has become of the messages."""
        self._next: dict[tuple[str, str], float] = {}
        """When the next line about one may be logged, if that is not at once."""
        self._lock = threading.Lock()

    def add(self, outcome: Outcome) -> None:
        """Count the messages that a part of a micro-batch could not handle."""
        with self._lock:
            self._summary.skipped += outcome.skipped
            self._summary.dead_letters += outcome.dead_letters
            self._summary.retries += outcome.retries
            for example in outcome.examples:
                known = self._untold.setdefault((example.kind, example.what), example)
                if known is not example:
                    known.count += example.count

    def tell(self, *, at_once: bool = False) -> None:
        """Log the failures that were not logged yet, unless the last line is too recent."""
        now = self._clock()
        with self._lock:
            self._next = {kind: time for kind, time in self._next.items() if time > now}
            due = [kind for kind in self._untold if at_once or kind not in self._next]
            told = [self._untold.pop(kind) for kind in due]
        for example in told:
            what = f"{example.count:,} {example.what}"
            logger.warning("messages not handled: %s; such as: %s", what, example.text)
            self._next[example.kind, example.what] = now + _INTERVAL.total_seconds()


class EndpointLog:
    """Logs which endpoints cannot be reached, each once, and when they can be reached again.

    Each worker finds out by itself. One that is asked no more says nothing either: after a while its
    last word is forgotten.
    """

    def __init__(self, summary: Summary, clock: Callable[[], float] = time.monotonic) -> None:
        self._summary = summary
        self._clock = clock
        self._down: dict[str, dict[str, float]] = {}
        """Until when the word of each worker counts, by endpoint and worker."""

    def add(self, outcome: Outcome) -> None:
        """Take note of the endpoints that a part of a micro-batch has called."""
        self._summary.postponed += outcome.postponed
        for circuit in outcome.circuits:
            endpoint, problem = circuit.endpoint, circuit.problem
            if problem and endpoint not in self._down:
                logger.warning(
                    "endpoint %s %s; messages to its functions wait until it can be reached",
                    endpoint,
                    problem,
                )
            if problem:
                counts_for = _WORD_COUNTS_FOR.total_seconds() + circuit.wait / 1000
                self._down.setdefault(endpoint, {})[circuit.worker] = self._clock() + counts_for
            elif endpoint in self._down:
                self._down[endpoint].pop(circuit.worker, None)
        self.look()

    def look(self) -> None:
        """Forget the words that are too old."""
        now = self._clock()
        for endpoint, workers in list(self._down.items()):
            for worker in [worker for worker, until in workers.items() if until < now]:
                del workers[worker]
            if not workers:
                del self._down[endpoint]
                logger.warning("endpoint %s can be reached again", endpoint)
        self._summary.endpoints_down = len(self._down)
