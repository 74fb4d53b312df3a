# SPDX-License-Identifier: Apache-2.0
"""The driver's server for reports about calls; each worker process has a connection.

A connection begins with the challenges of Python's ``multiprocessing.connection``: both sides prove that
they know the key of the run, which workers get with the code of the application. Then come messages
of bytes, first the name of the worker, and then its reports.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)

import attrs
from google.protobuf.message import DecodeError

from statefun.protocol.runtime_pb2 import CallReport
from statefun.runtime.calls.call_register import CallRegister

logger = logging.getLogger("statefun")

MOST_REPORT_BYTES = 256 * 1024 * 1024
"""The largest report."""
WORKER_READY = b"ready"
"""The answer to the name of a worker."""
_NAME_BYTES = 100
_KEY_BYTES = 32


@attrs.frozen
class CallServerAddress:
    """Where workers report, and how they prove that they may."""

    host: str
    port: int
    run: str
    """Names the run of the application."""
    key: bytes = attrs.field(repr=False)


class CallServer:
    """Takes the reports of workers, from its start until it is closed.

    Args:
        register: gets the reports.
        run: names the run of the application.
        host: the address on which workers reach this process.
        bind: the address to listen on; the same if not given.
    """

    def __init__(self, register: CallRegister, run: str, host: str, bind: str = "") -> None:
        self._register = register
        self._key = os.urandom(_KEY_BYTES)
        self._listener = Listener((bind or host, 0))
        _, port = self._listener.address
        self.address = CallServerAddress(host, int(port), run, self._key)
        """Where workers report."""
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._is_closed = False
        self._begin(self._accept)

    def close(self) -> None:
        """Take no more reports."""
        with self._lock:
            self._is_closed = True
            connections = list(self._connections)
        with suppress(OSError, EOFError), Client((self.address.host, self.address.port)):
            pass  # it ends the wait for the next worker
        self._listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.close()
        self._register.close()

    def _begin(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name="statefun call reports", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                continue  # a client that has gone at once
            with self._lock:
                if self._is_closed:
                    connection.close()
                    return
                self._connections.add(connection)
            self._begin(lambda connection=connection: self._serve(connection))  # type: ignore[misc] # its own

    def _serve(self, connection: Connection) -> None:
        """Take the reports of one worker."""
        worker = ""
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            worker = connection.recv_bytes(_NAME_BYTES).decode()
            self._register.connected(worker)
            connection.send_bytes(WORKER_READY)
            while True:
                self._register.report(
                    CallReport.FromString(connection.recv_bytes(MOST_REPORT_BYTES))
                )
        except (EOFError, OSError):
            pass  # the worker has ended
        except (AuthenticationError, DecodeError, ValueError) as error:
            logger.warning("a connection to the port for reports of calls is refused: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            with suppress(OSError):
                connection.close()
            if worker:
                self._register.disconnected(worker)
