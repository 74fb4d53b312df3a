# SPDX-License-Identifier: Apache-2.0
"""What the readers of an ingress share: the driver's memory, and its time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

_SPACING = timedelta(milliseconds=200)
"""Between two requests for a shard: Kinesis takes five a second."""
_REQUEST = timedelta(milliseconds=10)
"""What a request may take of the driver: with more than 20 shards, each is asked less often."""


class Room:
    """Limits what all readers together hold ahead of the query, and how often they ask.

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
        """Count a reader for as long as it asks."""
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
        """Count bytes that are held; negative ones that no longer are."""
        with self._lock:
            self._used += size

    def has_taken(self, size: int) -> bool:
        """Count bytes that are about to be held, if there is room for them; tell whether there is."""
        with self._lock:
            fits = self._used <= 0 or self._used + size <= self._most
            if fits:
                self._used += size
            return fits
