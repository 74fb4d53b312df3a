# SPDX-License-Identifier: Apache-2.0
"""Limits the memory and the time of the driver that all readers of an ingress together may use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

_SPACING = timedelta(milliseconds=200)
"""The time between two requests for a shard: Kinesis allows five requests a second."""
_REQUEST = timedelta(milliseconds=10)
"""The time of the driver for one request: with more than 20 shards, each is asked less often."""


class Room:
    """Limits how much memory all readers take for fetched records, and how often they send requests.

    >>> room = Room(1000)
    >>> with room.reader():
    ...     room.take(600), room.has_taken(600), room.spacing
    (None, False, datetime.timedelta(microseconds=200000))
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._used = 0
        self._readers = 0
        self._lock = threading.Lock()

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Count a reader while it runs."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    @property
    def spacing(self) -> timedelta:
        """The time between two requests for a shard."""
        return max(_SPACING, self._readers * _REQUEST)

    def take(self, size: int) -> None:
        """Add the size of records that are held, in bytes; it is negative for records that are dropped."""
        with self._lock:
            self._used += size

    def has_taken(self, size: int) -> bool:
        """Add the size of records that will be held, if there is room for them; return whether there is."""
        with self._lock:
            fits = self._used <= 0 or self._used + size <= self._most
            if fits:
                self._used += size
            return fits
