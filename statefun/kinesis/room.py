# SPDX-License-Identifier: Apache-2.0
"""Limits the memory and the requests that all shard readers of an ingress together may use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

_SPACING = timedelta(milliseconds=200)
"""The shortest time between two requests for a shard: Kinesis allows five requests a second."""
_REQUEST = timedelta(milliseconds=10)
"""The time that each request costs the driver: with more than 20 shards, a reader sends fewer requests."""


class Room:
    """The room that all shard readers of an ingress share: memory for records, and time for requests.

    >>> room = Room(1000)
    >>> with room.reader():
    ...     room.add(600), room.try_add(600), room.spacing
    (None, False, datetime.timedelta(microseconds=200000))
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._used = 0
        self._readers = 0
        self._lock = threading.Lock()

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Count one more running shard reader until the ``with`` block ends."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    @property
    def spacing(self) -> timedelta:
        """How long a reader waits between two requests; longer with more readers."""
        return max(_SPACING, self._readers * _REQUEST)

    def add(self, size: int) -> None:
        """Add bytes to the memory that records take, even beyond the limit; a negative size frees memory."""
        with self._lock:
            self._used += size

    def try_add(self, size: int) -> bool:
        """Add bytes to the memory that records take if there is room for them; return whether there was."""
        with self._lock:
            fits = self._used <= 0 or self._used + size <= self._most
            if fits:
                self._used += size
            return fits
