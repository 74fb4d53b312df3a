# SPDX-License-Identifier: Apache-2.0
"""Connections between workers and the driver; each end notices when the other end has gone."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from weakref import WeakSet

_IDLE = 15
"""The time without data, in seconds, after which TCP asks whether the other machine still answers."""
_INTERVAL = 5
"""If the other machine has not answered TCP, the time, in seconds, after which TCP asks again."""
_QUESTIONS = 3
"""After this many unanswered questions whether the other machine still answers, TCP ends the connection."""
_ENDED = {7, 8}
"""The states CLOSE and CLOSE_WAIT of TCP, in which Linux has a connection that the other end has closed."""
_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _QUESTIONS,
}


_open: WeakSet[socket.socket | Connection] = WeakSet()
"""The sockets of this process, which its forked children must not keep open."""
_no_fork = threading.Lock()
"""Is held while there are sockets that are not in ``_open``."""


def _close_inherited() -> None:
    """Close the sockets that a forked process has inherited, such as one of a ``ProcessPoolExecutor``.

    Otherwise the other end would not notice the end of the process that has opened them, as long as its child lives.
    """
    _no_fork.release()
    for each in [*_open]:
        with suppress(OSError):
            each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_no_fork.acquire,
        after_in_parent=_no_fork.release,
        after_in_child=_close_inherited,
    )


def listen(host: str, port: int = 0) -> socket.socket:
    """Return a socket that listens at the address ``host`` of this machine, on ``port``, or on a free one if it is 0.

    Raises:
        OSError: if another process listens there, or the address is not one of this machine.
    """
    host = host.strip("[]")  # as Spark writes addresses of IPv6
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
    _open.add(listening)
    return listening


def connect(host: str, port: int, patience: timedelta) -> Connection:
    """Return a connection to a port of another machine.

    Raises:
        OSError: if the other machine does not answer for ``patience``.
    """
    failure = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM
    ):
        connected = socket.socket(family, kind, protocol)
        _open.add(connected)
        connected.settimeout(patience.total_seconds())
        try:
            connected.connect(address)
        except OSError as error:
            connected.close()
            failure = error
        else:
            return connection_of(connected)
    raise failure


def connection_of(connected: socket.socket) -> Connection:
    """Convert a socket to a connection that ends when the other machine does not answer any more."""
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if hasattr(socket, name):  # not each system has all of them
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    with _no_fork:
        connection = Connection(connected.detach())
        _open.add(connection)
    return connection


@contextmanager
def limited(connection: Connection, patience: timedelta) -> Iterator[None]:
    """During the block, let reads and writes fail with an OSError if the other end keeps them waiting.

    Args:
        connection: a connection of :func:`connection_of`.
        patience: how long a read or write may wait.
    """
    _set_limit(connection, patience)
    yield
    _set_limit(connection, timedelta(0))


def limit_writes(connection: Connection, patience: timedelta) -> None:
    """From now on, let a write fail with an OSError if the other end keeps it waiting for ``patience``."""
    with _socket_of(connection) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time(patience))


def has_ended(connection: Connection) -> bool:
    """Return whether the other end has closed a connection, perhaps with data that nobody has read yet.

    On systems other than Linux, which do not report this, the result is False.
    """
    if sys.platform != "linux":
        return False
    with suppress(OSError), _socket_of(connection) as same:
        return same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _ENDED
    return False


def shut(connection: Connection) -> None:
    """End a connection: threads that read from it get an EOFError, at both ends.

    Closing it instead would not wake a reading thread up, and another file could get the same file number.
    """
    with suppress(OSError), _socket_of(connection) as same:
        same.shutdown(socket.SHUT_RDWR)


def _set_limit(connection: Connection, patience: timedelta) -> None:
    with _socket_of(connection) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time(patience))
    limit_writes(connection, patience)


def _time(patience: timedelta) -> bytes:
    seconds, rest = divmod(patience, timedelta(seconds=1))
    return struct.pack("ll", seconds, rest // timedelta(microseconds=1))


@contextmanager
def _socket_of(connection: Connection) -> Iterator[socket.socket]:
    with _no_fork, socket.socket(fileno=os.dup(connection.fileno())) as same:
        yield same
