# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from statefun.runtime.connections import Connections, most_connections


@pytest.fixture
def sockets() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Return three connections: the server's end and the client's end of each."""
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3)]
        for pair in pairs:
            for end in pair:
                stack.enter_context(end)
        yield pairs


def test_the_connection_that_has_waited_longest_makes_room(
    sockets: list[tuple[socket.socket, socket.socket]],
) -> None:
    """Its client reads the end, and its place is the new connection's once it has left."""
    (first, first_client), (second, _), (third, _) = sockets
    connections = Connections(2)
    for connection in (first, second):
        assert connections.admit()
        connections.wait(connection)
    connections.serve(first)
    connections.wait(first)

    connections.leave(second)
    assert connections.admit()
    connections.wait(third)
    assert not connections.admit()  # its place is not given back yet

    assert first_client.recv(1) == b""
    with pytest.raises(ConnectionAbortedError):
        connections.serve(first)
    connections.leave(first)
    assert connections.admit()


def test_busy_connections_are_not_closed(
    sockets: list[tuple[socket.socket, socket.socket]],
) -> None:
    """A new connection is refused while all others are served."""
    connections = Connections(2)
    for connection, _ in sockets[:2]:
        assert connections.admit()
        connections.wait(connection)
        connections.serve(connection)

    assert not connections.admit()


def test_connections_leave_file_descriptors_to_others() -> None:
    """A process with few of them has fewer connections; 1,024 are the most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        assert most_connections() == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert most_connections() == min(1024, soft // 4)
