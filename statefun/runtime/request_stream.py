# SPDX-License-Identifier: Apache-2.0
"""Reads the requests of a connection, within limits of time and size."""

from __future__ import annotations

import io
import re
import socket
import time
from typing import Any

REQUEST_SECONDS = 60
"""How long a client may take for a request, and for reading its answer, and how long a connection may be idle."""
_MOST_HEAD_BYTES = 65_536
"""The largest size of a request's first line and headers together, in bytes."""
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r?\n")
"""A line of a header, with a name as RFC 9110 defines it: Python's parser accepts other lines, and hides headers then."""


class LargeHeadError(Exception):
    """The first line and the headers of a request are too large."""


class RequestStream(io.BufferedReader):
    """Reads requests from a connection, and keeps the lines of a request's head."""

    def __init__(self, connection: socket.socket) -> None:
        self._limited = _Limited(connection)
        self._lines: list[bytes] = []
        super().__init__(self._limited)

    def begin(self) -> None:
        """Begin a request: from now on, its time and the bytes of its headers are limited."""
        self._limited.begin()
        self._lines.clear()

    def end_of_head(self) -> None:
        """Stop limiting bytes after the headers, as the length of the request's content is known."""
        self._limited.end_of_head()

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line, and keep it."""
        line = super().readline(size)
        self._lines.append(line)
        return line

    def unreadable_header(self) -> bytes | None:
        """Return the first line of the headers that is not a name, a colon and a value; None if there is none."""
        _, *lines, _ = self._lines  # the first line of the request, and the empty one
        return next((line for line in lines if not _HEADER.fullmatch(line)), None)


class _Limited(io.RawIOBase):
    """Reads bytes from a connection, within limits of time and size."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._end = 0.0
        self._left: int | None = None
        self.begin()

    def begin(self) -> None:
        """Set the limits of a request and of its head."""
        self._end, self._left = time.monotonic() + REQUEST_SECONDS, _MOST_HEAD_BYTES

    def end_of_head(self) -> None:
        """Drop the limit of the head."""
        self._left = None

    def readable(self) -> bool:
        """Return True: this stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes of the request into a buffer; return their number.

        Raises:
            TimeoutError: if the time of the request is over.
            LargeHeadError: if the headers of the request are too large.
        """
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._connection.settimeout(remaining)
        count = self._connection.recv_into(buffer)
        if self._left is not None:
            self._left -= count
            if self._left < 0:
                raise LargeHeadError
        return count
