# SPDX-License-Identifier: Apache-2.0
"""A proxy before any server of this machine that makes bytes wait, or cuts all connections."""

from __future__ import annotations

import contextlib
import socket
import threading

_PIECE = 65_536
"""So many bytes are passed on at once, at most."""


class TcpProxy:
    """Passes bytes on between clients and a server on 127.0.0.1, which may be started later.

    Args:
        host: at which address of this machine clients connect, such as 127.0.0.2.
        port: at which the server listens, and the proxy as well.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._server = socket.create_server((host, port))
        self._passes = threading.Event()
        self._passes.set()
        self._is_cut = False
        self._connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections, and end all."""
        self.cut()
        _end(self._server)  # or the thread that accepts connections would go on
        self._server.close()

    def hold(self) -> None:
        """Let all bytes wait until :meth:`mend`, as lost packets do that are sent again."""
        self._passes.clear()

    def cut(self) -> None:
        """End all connections, and each further one, until :meth:`mend`."""
        self._is_cut = True
        self._passes.set()
        for connection in [*self._connections]:
            _end(connection)

    def mend(self) -> None:
        """Pass bytes on again."""
        self._is_cut = False
        self._passes.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            both = {client, server}
            self._connections |= both
            try:
                if not self._is_cut:
                    asking = threading.Thread(target=self._pass_on, args=(client, server))
                    asking.start()
                    self._pass_on(server, client)
                    asking.join()
            finally:
                self._connections -= both

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        """Pass bytes on until one of the connections ends; then the other one ends, too."""
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self._passes.wait()
                sink.sendall(piece)
        _end(source)
        _end(sink)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
