# SPDX-License-Identifier: Apache-2.0
"""The connections that a server has: a limited number, of which the idle ones make room for new ones."""

from __future__ import annotations

import resource
import socket
import threading
from contextlib import suppress
from typing import final

_MOST = 1024
"""How many connections a server has at a time at most."""
_SHARE_OF_DESCRIPTORS = 4
"""A server takes at most this part of the file descriptors that the process may have."""
_CLOSING_SECONDS = 1.0
"""How long a new connection waits for the place of one that is being closed."""


def most_connections() -> int:
    """Return how many connections a server may have at a time in this process."""
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most_files == resource.RLIM_INFINITY:
        return _MOST
    return max(1, min(_MOST, most_files // _SHARE_OF_DESCRIPTORS))


@final
class Connections:
    """Admits connections up to a number; for a further one, closes the one that has waited longest for a request.

    So clients that open connections and ask nothing keep nobody out, such as the probes of a cluster. A connection
    is closed before its request is served, or after it, and never meanwhile.

    Args:
        most: the largest number of connections at a time.
    """

    def __init__(self, most: int) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}
        """The connections that wait for a request, the longest first."""

    def admit(self) -> bool:
        """Take a place for a new connection; return False if all connections are busy."""
        return self._places.acquire(blocking=False) or (
            self._close_longest() and self._places.acquire(timeout=_CLOSING_SECONDS)
        )

    def leave(self, connection: socket.socket) -> None:
        """Give back the place of a connection that was admitted."""
        with self._lock:
            self._waiting.pop(connection, None)
        self._places.release()

    def wait(self, connection: socket.socket) -> None:
        """Note that a connection waits for a request from now on, and may be closed."""
        with self._lock:
            self._waiting[connection] = None

    def serve(self, connection: socket.socket) -> None:
        """Note that a request of a connection is served from now on.

        Raises:
            ConnectionAbortedError: if the connection was closed to make room for another one.
        """
        with self._lock:
            if connection not in self._waiting:
                raise ConnectionAbortedError
            del self._waiting[connection]

    def _close_longest(self) -> bool:
        with self._lock:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            del self._waiting[longest]
            with suppress(OSError):  # the client has closed it
                longest.shutdown(socket.SHUT_RDWR)
        return True
