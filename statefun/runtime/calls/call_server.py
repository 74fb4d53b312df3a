# SPDX-License-Identifier: Apache-2.0
"""The driver's server for workers' reports about calls; each worker process has one connection.

A connection begins with the challenges of Python's ``multiprocessing.connection``: both sides prove that
they know the key of the run, which workers get with the code of the application. Then the worker sends
messages of bytes: first its name, then its reports. The driver answers the name, and each report that asks whether a
call has left a micro-batch that is staged.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

import attrs
from google.protobuf.message import DecodeError

from statefun.engine.left_calls import MOST_RESULT_BYTES
from statefun.protocol.runtime_pb2 import CallAnswer, CallReport
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.calls.call_sockets import (
    connection_of,
    has_ended,
    limit_writes,
    limited,
    listen,
    shut,
)
from statefun.sdk.errors import PlatformError

logger = logging.getLogger("statefun")

WORKER_READY = b"ready"
"""The driver's answer when a worker has sent its name."""
HANDSHAKE = timedelta(seconds=10)
"""How long each step at the beginning of a connection may take."""
_MOST_REPORT_BYTES = MOST_RESULT_BYTES + 1024 * 1024
"""The largest size of a report, in bytes: room for the largest result and for the key of its address."""
_NAME_BYTES = 100
_KEY_BYTES = 32
_LAST_REPORTS = 5.0
"""How long, in seconds, a run that has failed waits for the last reports of workers that have ended."""
_LOOK = 0.5
"""The time, in seconds, between two checks of the accepting thread whether the server is closed."""


@attrs.frozen
class CallServerAddress:
    """The address to which workers report, and the key that proves that they belong to the run."""

    host: str
    port: int
    key: bytes = attrs.field(repr=False)
    grace: timedelta = timedelta(0)
    """How long a worker that has to end waits for its calls."""


class CallServer:
    """Receives workers' reports about calls, from when it is made until it is closed.

    Args:
        register: gets the reports.
        host: the address at which workers reach this process.
        bind: the address at which the server listens; ``host`` if not given.
        grace: how long a worker that has to end waits for its calls.
        port: the port at which the server listens; any free one if 0.

    Raises:
        PlatformError: if the server cannot listen there.
    """

    def __init__(
        self,
        register: CallRegister,
        host: str,
        bind: str = "",
        grace: timedelta = timedelta(0),
        port: int = 0,
    ) -> None:
        self._register = register
        self._key = os.urandom(_KEY_BYTES)
        try:
            self._listener = listen(bind or host, port)
        except OSError as error:
            number = error.errno or 0
            # Python adds the address to the text of the system.
            reason = os.strerror(number) if number in errno.errorcode else error.strerror
            raise PlatformError(
                f"the driver cannot listen at {bind or host}, port {port}, for reports about long calls: "
                f"{reason}; give spark.statefun.call-port another port, or 0 for any free one"
            ) from error
        chosen = int(self._listener.getsockname()[1])
        self.address = CallServerAddress(host, chosen, self._key, grace)
        """The address to which workers report, with the key of the run."""
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        """The connections, and the threads that receive from them."""
        self._closed = threading.Event()
        self._accepting = self._begin(self._accept)

    def close(self, *, has_failed: bool = False) -> None:
        """Close all connections; no reports are received any more, and the port is free.

        Args:
            has_failed: see :meth:`CallRegister.close`.
        """
        with self._lock:
            self._closed.set()
            ended = [thread for each, thread in self._connections.items() if has_ended(each)]
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends a wait for connections
        self._accepting.join()
        self._register.end_waiting()
        if has_failed:
            end = time.monotonic() + _LAST_REPORTS
            for thread in ended:
                thread.join(max(0.0, end - time.monotonic()))
        self._register.close(has_failed=has_failed)
        with self._lock:
            for connection in self._connections:
                shut(connection)

    def _begin(self, run: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=run, name="statefun call reports", daemon=True)
        thread.start()
        return thread

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
                    if self._closed.is_set():
                        connection.close()
                    else:
                        thread = self._begin(partial(self._serve, connection))
                        self._connections[connection] = thread

    def _serve(self, connection: Connection) -> None:
        """Receive the reports of one worker until its connection ends."""
        worker, is_known_to_end = "", True
        try:
            with limited(connection, HANDSHAKE):
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                worker = connection.recv_bytes(_NAME_BYTES).decode()
                self._register.connected(worker)
                connection.send_bytes(WORKER_READY)
            limit_writes(connection, HANDSHAKE)
            while True:
                report = CallReport.FromString(connection.recv_bytes(_MOST_REPORT_BYTES))
                if report.waits:
                    answer = partial(_answer, connection, report.attempt)
                    self._register.ask(worker, report.attempt, answer)
                elif report.ends:
                    self._register.ends(worker)
                else:
                    self._register.report(worker, report, partial(has_ended, connection))
        except (EOFError, ConnectionResetError):
            pass  # the worker has ended
        except OSError as error:
            # An error without a number: the worker has ended in the middle of a report.
            is_known_to_end = error.errno is None
        except (AuthenticationError, DecodeError, ValueError) as error:
            logger.warning(
                "a connection to the port to which workers report about calls is refused, since its client "
                "does not know the key of the run or sends other data: %s",
                error,
            )
        finally:
            if worker:  # after that, the register answers no more over this connection
                self._register.disconnected(worker, has_ended=is_known_to_end)
            with self._lock:
                del self._connections[connection]
                with suppress(OSError):
                    connection.close()


def _answer(connection: Connection, attempt: str, has_left: bool) -> None:  # noqa: FBT001 - as it is called
    try:
        connection.send_bytes(CallAnswer(attempt=attempt, left=has_left).SerializeToString())
    except (OSError, ValueError):  # the worker has ended, or does not read any more
        shut(connection)
