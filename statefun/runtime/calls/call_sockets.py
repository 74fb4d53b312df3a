# SPDX-License-Identifier: Apache-2.0
"""Connections between workers and the driver, whose ends notice when the other end is gone."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection

_IDLE = 15
"""Seconds without data after which the system asks whether the other machine is still there."""
_INTERVAL = 5
"""Seconds between two such questions."""
_QUESTIONS = 3
"""How many questions without an answer end the connection."""
_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _QUESTIONS,
}


def listen(host: str) -> socket.socket:
    """Listen on a free port of an address of this machine."""
    host = host.strip("[]")  # as Spark writes addresses of IPv6
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=socket.SOMAXCONN)


def connect(host: str, port: int, patience: timedelta) -> Connection:
    """Connect to a port of another machine.

    Raises:
        OSError: if there is no answer for up to ``patience``.
    """
    address = (host.strip("[]"), port)
    return connection_of(socket.create_connection(address, patience.total_seconds()))


def connection_of(connected: socket.socket) -> Connection:
    """Convert a socket to a connection that ends when the other machine is gone."""
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if hasattr(socket, name):  # not each system has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(connected.detach())


@contextmanager
def limited(connection: Connection, patience: timedelta) -> Iterator[None]:
    """Let reading and writing fail with an OSError if the other end lets them wait for too long."""
    _set_limit(connection, patience)
    yield
    _set_limit(connection, timedelta(0))


def shut(connection: Connection) -> None:
    """End a connection: threads that read from it get an EOFError, on both sides.

    To close it would not wake a thread up that reads, and another file could get its number.
    """
    with suppress(OSError), _socket_of(connection) as same:
        same.shutdown(socket.SHUT_RDWR)


def _set_limit(connection: Connection, patience: timedelta) -> None:
    seconds, rest = divmod(patience, timedelta(seconds=1))
    limit = struct.pack("ll", seconds, rest // timedelta(microseconds=1))
    with _socket_of(connection) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _socket_of(connection: Connection) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))
