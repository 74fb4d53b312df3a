# SPDX-License-Identifier: Apache-2.0
"""The driver's server for workers' reports about calls; each worker process has one connection.

A connection begins with the challenges of Python's ``multiprocessing.connection``: both sides prove that
they know the key of the run, which workers get with the code of the application. Then the worker sends
messages of bytes: first its name, then its reports.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

import attrs
from google.protobuf.message import DecodeError

from statefun.engine.left_calls import MOST_RESULT_BYTES
from statefun.protocol.runtime_pb2 import CallReport
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.calls.call_sockets import connection_of, limited, listen, shut

logger = logging.getLogger("statefun")

WORKER_READY = b"ready"
"""The driver's answer when a worker has sent its name."""
HANDSHAKE = timedelta(seconds=10)
"""How long each step at the beginning of a connection may take."""
_MOST_REPORT_BYTES = MOST_RESULT_BYTES + 1024 * 1024
"""The largest size of a report, in bytes: room for the largest result and for the key of its address."""
_NAME_BYTES = 100
_KEY_BYTES = 32
_LOOK = 0.5
"""The time, in seconds, between two checks of the accepting thread whether the server is closed."""


@attrs.frozen
class CallServerAddress:
    """The address to which workers report, and the key that proves that they belong to the run."""

    host: str
    port: int
    run: str
    """The id of the application's run."""
    key: bytes = attrs.field(repr=False)


class CallServer:
    """Receives workers' reports about calls, from when it is made until it is closed.

    Args:
        register: gets the reports.
        run: the id of the application's run.
        host: the address at which workers reach this process.
        bind: the address at which the server listens; ``host`` if not given.
    """

    def __init__(self, register: CallRegister, run: str, host: str, bind: str = "") -> None:
        self._register = register
        self._key = os.urandom(_KEY_BYTES)
        self._listener = listen(bind or host)
        port = int(self._listener.getsockname()[1])
        self.address = CallServerAddress(host, port, run, self._key)
        """The address to which workers report, with the key of the run."""
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._closed = threading.Event()
        self._begin(self._accept)

    def close(self) -> None:
        """Close all connections; no reports are received any more."""
        with self._lock:
            self._closed.set()
            for connection in self._connections:
                shut(connection)
        self._register.close()

    def _begin(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name="statefun call reports", daemon=True).start()

    def _accept(self) -> None:
        self._listener.settimeout(_LOOK)
        with self._listener:
            while not self._closed.is_set():
                try:
                    connected, _ = self._listener.accept()
                    connection = connection_of(connected)
                except TimeoutError:
                    continue
                except OSError:  # a client that has gone at once, or no more files
                    self._closed.wait(_LOOK)
                    continue
                with self._lock:
                    self._connections.add(connection)
                    if self._closed.is_set():
                        shut(connection)
                self._begin(partial(self._serve, connection))

    def _serve(self, connection: Connection) -> None:
        """Receive the reports of one worker until its connection ends."""
        worker, has_ended = "", True
        try:
            with limited(connection, HANDSHAKE):
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                worker = connection.recv_bytes(_NAME_BYTES).decode()
                self._register.connected(worker)
                connection.send_bytes(WORKER_READY)
            while True:
                self._register.report(
                    CallReport.FromString(connection.recv_bytes(_MOST_REPORT_BYTES))
                )
        except (EOFError, ConnectionResetError):
            pass  # the worker has ended
        except OSError:
            has_ended = False  # as far as is known
        except (AuthenticationError, DecodeError, ValueError) as error:
            logger.warning(
                "a connection to the port to which workers report about calls is refused, since its client "
                "does not know the key of the run or sends other data: %s",
                error,
            )
        finally:
            with self._lock:
                self._connections.discard(connection)
                with suppress(OSError):
                    connection.close()
            if worker:
                self._register.disconnected(worker, has_ended=has_ended)
