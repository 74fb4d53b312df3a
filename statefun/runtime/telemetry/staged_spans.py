# SPDX-License-Identifier: Apache-2.0
"""Keeps the trace journals of staged micro-batches in memory until the micro-batches are committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import attrs

from statefun.protocol.runtime_pb2 import Outcome

MOST_STAGED_BYTES = 8 * 1024 * 1024
"""How many bytes are kept at most, those of half a million spans; older micro-batches are dropped for newer ones."""


@attrs.frozen
class StagedSpans:
    """The journal of one micro-batch."""

    batch: int
    time: int
    """When the micro-batch was staged, in nanoseconds since the epoch."""
    tasks: Sequence[tuple[bytes, bytes]]
    """The entries of each task, and their details, as Arrow streams."""

    @property
    def size(self) -> int:
        """How many bytes the journal has."""
        return sum(len(entries) + len(details) for entries, details in self.tasks)


class UncommittedSpans:
    """The journals of the micro-batches that are staged and not known to be committed; any thread may use this.

    Args:
        newest: returns the number of the newest committed micro-batch.
    """

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self._batches: dict[int, StagedSpans] = {}
        self._lock = threading.Lock()
        self.dropped = 0
        """How many micro-batches were dropped, as there were too many bytes."""

    def add(self, batch: int, outcomes: Sequence[Outcome]) -> None:
        """Add a staged micro-batch; one that is computed again replaces its earlier journal."""
        tasks = [(each.traces, each.span_details) for each in outcomes if each.span_details]
        with self._lock:
            self._batches.pop(batch, None)
            if tasks:
                self._batches[batch] = StagedSpans(batch, time.time_ns(), tasks)
            while sum(each.size for each in self._batches.values()) > MOST_STAGED_BYTES:
                del self._batches[min(self._batches)]
                self.dropped += 1

    def take(self) -> list[StagedSpans]:
        """Remove and return the micro-batches that are committed by now, the oldest one first."""
        if not self._batches:
            return []
        newest = self._newest()
        with self._lock:
            numbers = sorted(each for each in self._batches if each <= newest)
            return [self._batches.pop(each) for each in numbers]
