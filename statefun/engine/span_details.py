# SPDX-License-Identifier: Apache-2.0
"""What OpenTelemetry's spans need besides the entries of a trace journal: the ids of traces, and times.

A span is made from an entry and its details after the micro-batch is committed; so this module needs no OpenTelemetry.
While a function handles a message, libraries that the function uses may ask for the present span: then the
caller of this module attaches the trace of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any, Final

Attach = Callable[[str], object]
"""Makes a trace, given as its headers, the present one of the thread or task; returns a token."""
Detach = Callable[[Any], None]
"""Given the token of an ``Attach``, makes the trace present again that was present before."""
NO_ENTRY: Final = -1
"""The number of the entry of a message that is not noted."""


class SpanDetails:
    """Collects the details of the trace entries of one task; each list has an item for each entry.

    Args:
        attach: makes a trace the current one of the thread; None if no other library uses the current trace.
        detach: restores the trace that was the current one before ``attach``.
    """

    def __init__(self, attach: Attach | None = None, detach: Detach | None = None) -> None:
        self.attach = attach
        self.detach = detach
        self.traces: list[str] = []
        """The ids of the traces."""
        self.starts: list[int] = []
        """When the invocations began, in nanoseconds since the epoch; 0 if not yet, and for entries of other kinds."""
        self.ends: list[int] = []
        """When the invocations ended; 0 for those that have not."""

    def add(self, trace: str) -> None:
        """Add the details of an entry that belongs to a trace."""
        self.traces.append(trace)
        self.starts.append(0)
        self.ends.append(0)

    def close(self) -> None:
        """Forget all details: calls that go on after the task note nothing any more."""
        self.traces, self.starts, self.ends = [], [], []


class CallWatch:
    """Notes when the invocations of one call begin and end, and makes their traces the present ones.

    Args:
        details: the details of the task's entries, in which the times are set.
        traces: the headers of each message's trace; None for a message without one.
        entries: the number of each message's entry; -1 if it has none.
    """

    __slots__ = ("_details", "_entries", "_present", "_token", "_traces")

    def __init__(self, details: SpanDetails, traces: list[str | None], entries: list[int]) -> None:
        self._details = details
        self._traces = traces
        self._entries = entries
        self._present = NO_ENTRY
        self._token: object = None

    def begin(self, index: int) -> None:
        """Note that the message with this index is handled next, and that the one before it has been."""
        now = time_ns()
        self._leave(now)
        entry, starts = self._entries[index], self._details.starts
        if 0 <= entry < len(starts):
            self._present = entry
            starts[entry] = now
        trace, attach = self._traces[index], self._details.attach
        if attach is not None and trace is not None:
            self._token = attach(trace)

    def end(self) -> None:
        """Note that the last message has been handled."""
        self._leave(time_ns())

    def _leave(self, now: int) -> None:
        ends = self._details.ends
        if 0 <= self._present < len(ends):
            ends[self._present] = now
        self._present = NO_ENTRY
        detach = self._details.detach
        if detach is not None and self._token is not None:
            detach(self._token)
            self._token = None
