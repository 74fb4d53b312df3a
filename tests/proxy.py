# SPDX-License-Identifier: Apache-2.0
"""A proxy before a Kafka broker that lets answers to commits get lost, is slow, cuts all connections, or swallows everything."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

_END_TRANSACTION = 26
"""The number of the request ``EndTxn`` in Kafka's protocol."""
_HEADER = struct.Struct(">hhi")
"""Of a request, behind its length: what, in which version, and a number that its answer has."""


class LossyProxy:
    """Passes bytes on; an answer to a commit is lost with its connection as often as asked for."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.target = ("127.0.0.1", 0)
        self.to_lose = 0
        """How many answers are still to be lost."""
        self.lost = 0
        self.connections = 0
        """How many connections clients have made."""
        self.bytes_per_second = 0
        """How many bytes of requests it passes on; 0 for as many as there are."""
        self.latency = timedelta()
        """How long each request takes besides."""
        self._is_cut = False
        self._is_hole = False
        self._clients: set[socket.socket] = set()
        self._swallowed: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()

    def cut(self) -> None:
        """End all connections, and each further one, until :meth:`mend`."""
        self._is_cut = True
        for client in [*self._clients]:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def swallow(self) -> None:
        """Take connections and bytes, and pass none on, until :meth:`mend`.

        The connections stay open and silent for ever, as if their packets were dropped: only new ones are of use then.
        """
        self._is_hole = True
        self._swallowed.update(self._clients)

    def mend(self) -> None:
        """Pass bytes on again."""
        self._is_cut = self._is_hole = False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        if self._is_hole:
            self._swallowed.add(client)
        self._clients.add(client)
        try:
            with contextlib.suppress(OSError), client:
                if not self._is_cut:
                    self._pass_on(client)
        finally:
            self._clients.discard(client)
            self._swallowed.discard(client)

    def _pass_on(self, client: socket.socket) -> None:
        with socket.create_connection(self.target) as broker:
            commits: set[int] = set()
            asking = threading.Thread(
                target=self._pass_requests, args=(client, broker, commits), daemon=True
            )
            asking.start()
            for frame in _frames(broker):
                if client in self._swallowed:
                    continue
                (number,) = struct.unpack_from(">i", frame)
                if number in commits and self.to_lose > 0:
                    self.to_lose -= 1
                    self.lost += 1
                    break
                client.sendall(struct.pack(">i", len(frame)) + frame)
            # Closing alone would leave the other thread waiting.
            for end in (client, broker):
                end.shutdown(socket.SHUT_RDWR)

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, commits: set[int]
    ) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(client):
                if client in self._swallowed:
                    continue
                what, _, number = _HEADER.unpack_from(frame)
                if what == _END_TRANSACTION:
                    commits.add(number)
                time.sleep(self._delay(len(frame)).total_seconds())
                broker.sendall(struct.pack(">i", len(frame)) + frame)
            broker.shutdown(socket.SHUT_WR)

    def _delay(self, size: int) -> timedelta:
        transfer = size / self.bytes_per_second if self.bytes_per_second else 0
        return self.latency + timedelta(seconds=transfer)


def _frames(connection: socket.socket) -> Iterator[bytes]:
    """Yield whole messages, without the lengths before them, until the connection ends."""
    with connection.makefile("rb") as file:
        while len(length := file.read(4)) == 4:
            (size,) = struct.unpack(">i", length)
            if len(frame := file.read(size)) < size:
                return
            yield frame
