# SPDX-License-Identifier: Apache-2.0
"""Logs messages that functions could not handle, and endpoints that cannot be reached."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.reporting.summary import Summary
from statefun.sdk.log_limits import LogLimit

logger = logging.getLogger("statefun")

_INTERVAL = timedelta(seconds=10)
"""The shortest time between two log lines about failures of one kind."""
_MOST_LINES = 50
"""How many lines about one sort of problem are logged in an interval: names of functions and hosts may be invented."""
_FURTHER_FAILURES = (
    "messages not handled: %s further lines left out; the metrics count all failures by function"
)
_FURTHER_DOWN = "%s further endpoints cannot be reached; messages to their functions wait"
_FURTHER_REACHABLE = "%s further endpoints can be reached again"
_REPORT_COUNTS_FOR = timedelta(minutes=10)
"""How long a report of an unreachable endpoint is valid after the time of the worker's next attempt."""


class _Lines:
    """Logs a limited number of lines of each sort in an interval, and how many others there were."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._limit = LogLimit(_INTERVAL, _MOST_LINES, clock)

    def add(self, further: str, text: str, *args: str) -> None:
        """Log a line, unless there were too many.

        Args:
            further: the line about those that were not logged, with a place for their number; it names the sort.
            text: the line, with places for the arguments.
            args: the arguments.
        """
        left_out = self._limit.passed(further)
        if left_out:
            logger.warning(further, f"{left_out:,}")
        if left_out is not None:
            logger.warning(text, *args)

    def look(self, *, at_once: bool = False) -> None:
        """Log how many lines of each sort were left out, after the interval or at once."""
        for further, count in self._limit.take_left_out(at_once=at_once):
            logger.warning(further, f"{count:,}")


class FailureLog:
    """Counts messages that could not be handled, and logs an example of each kind of failure.

    The first failure of a kind is logged at once; later failures of the kind are logged together. Of very many kinds,
    such as failures of functions that clients invent, some are logged as examples.

    Args:
        summary: gets the counts.
        clock: gives the time in seconds, monotonic.
    """

    def __init__(self, summary: Summary, clock: Callable[[], float] = time.monotonic) -> None:
        self._summary = summary
        self._clock = clock
        self._unlogged: dict[tuple[str, str], Outcome.Example] = {}
        """Examples of failures that are not logged yet, by kind, and by what has happened to the messages."""
        self._next: dict[tuple[str, str], float] = {}
        """The earliest time of the next log line about a kind of failure; other kinds are logged at once."""
        self._lines = _Lines(clock)
        self._lock = threading.Lock()

    def add(self, outcome: Outcome) -> None:
        """Count the messages that one task of a micro-batch could not handle."""
        with self._lock:
            self._summary.skipped += outcome.skipped
            self._summary.dead_letters += outcome.dead_letters
            self._summary.retries += outcome.retries
            for example in outcome.examples:
                first = self._unlogged.setdefault((example.kind, example.what), example)
                if first is not example:
                    first.count += example.count

    def log(self, *, at_once: bool = False) -> None:
        """Log the failures that were not logged yet; a kind that was logged recently waits.

        Args:
            at_once: whether to log also kinds that were logged recently.
        """
        now = self._clock()
        with self._lock:
            self._next = {kind: time for kind, time in self._next.items() if time > now}
            due = [kind for kind in self._unlogged if at_once or kind not in self._next]
            examples = [self._unlogged.pop(kind) for kind in due]
        for example in examples:
            what = f"{example.count:,} {example.what}"
            text = "messages not handled: %s; such as: %s"
            self._lines.add(_FURTHER_FAILURES, text, what, example.text)
            self._next[example.kind, example.what] = now + _INTERVAL.total_seconds()
        self._lines.look(at_once=at_once)


class EndpointLog:
    """Logs once that an endpoint cannot be reached, and once that it can be reached again.

    Each worker finds out by itself whether it can reach an endpoint, and reports this after micro-batches in
    which it calls the endpoint. A worker that no longer calls the endpoint reports nothing: its last report
    expires after a while.

    Args:
        summary: gets the counts.
        clock: gives the time in seconds, monotonic.
    """

    def __init__(self, summary: Summary, clock: Callable[[], float] = time.monotonic) -> None:
        self._summary = summary
        self._clock = clock
        self._down: dict[str, dict[str, float]] = {}
        """By endpoint and worker, the time until which the worker's last report is valid."""
        self._lines = _Lines(clock)
        self._lock = threading.Lock()

    def add(self, outcome: Outcome) -> None:
        """Count the messages that a task has postponed; log which endpoints went down or came back."""
        new_problems: dict[str, str] = {}
        with self._lock:
            self._summary.postponed += outcome.postponed
            for circuit in outcome.circuits:
                endpoint, problem = circuit.endpoint, circuit.problem
                if problem:
                    if endpoint not in self._down:
                        new_problems[endpoint] = problem
                    counts_for = _REPORT_COUNTS_FOR.total_seconds() + circuit.wait / 1000
                    self._down.setdefault(endpoint, {})[circuit.worker] = self._clock() + counts_for
                elif endpoint in self._down:
                    self._down[endpoint].pop(circuit.worker, None)
        for endpoint, problem in new_problems.items():
            text = "endpoint %s %s; messages to its functions wait until it can be reached"
            self._lines.add(_FURTHER_DOWN, text, endpoint, problem)
        self.look()

    def look(self, *, at_once: bool = False) -> None:
        """Drop reports that have expired, and log which endpoints can be reached again.

        Args:
            at_once: whether to log now how many lines were left out lately.
        """
        now = self._clock()
        with self._lock:
            for workers in self._down.values():
                for worker in [worker for worker, until in workers.items() if until < now]:
                    del workers[worker]
            reachable = [endpoint for endpoint, workers in self._down.items() if not workers]
            for endpoint in reachable:
                del self._down[endpoint]
            self._summary.endpoints_down = len(self._down)
        for endpoint in reachable:
            self._lines.add(_FURTHER_REACHABLE, "endpoint %s can be reached again", endpoint)
        self._lines.look(at_once=at_once)
