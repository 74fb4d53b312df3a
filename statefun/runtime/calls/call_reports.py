# SPDX-License-Identifier: Apache-2.0
"""A worker's reports about calls that have left their micro-batches."""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from contextlib import suppress
from functools import lru_cache
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from queue import SimpleQueue

from statefun.engine.call_loop import LeavingCalls
from statefun.protocol.runtime_pb2 import CallReport
from statefun.runtime.calls.call_server import WORKER_READY, CallServerAddress

logger = logging.getLogger("statefun")

MOST_CALLS = 10_000
"""How many calls of a worker process go on outside of micro-batches."""
_NAME_BYTES = 100


class CallReports:
    """Reports to the driver, from one process.

    A connection that is lost is opened again under another name: the driver has given up the calls that
    were made under the first one.
    """

    def __init__(self, server: CallServerAddress) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._unsent = 0
        self._lock = threading.Condition()
        self.worker = ""
        """The name under which this process reports; empty while there is no connection."""

    def open(self) -> bool:
        """Connect to the driver, unless there is a connection; return whether there is one."""
        if self.worker:
            return True
        worker = uuid.uuid4().hex
        try:
            address = (self._server.host, self._server.port)
            connection = Client(address, authkey=self._server.key)
            _keep_alive(connection)
            connection.send_bytes(worker.encode())
            if connection.recv_bytes(_NAME_BYTES) != WORKER_READY:
                raise OSError("the driver is not ready")
        except (OSError, EOFError, AuthenticationError) as error:
            logger.warning("reports about calls cannot be sent to the driver: %s", error)
            return False
        self._connection, self.worker = connection, worker
        self._queue = SimpleQueue()
        threading.Thread(
            target=self._send, args=(connection, self._queue), name="statefun reports", daemon=True
        ).start()
        return True

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Report what a call has come to; a thread sends it."""
        report = CallReport(address=key, attempt=attempt, result=result or b"")
        with self._lock:
            self._unsent += 1
        self._queue.put(report.SerializeToString())

    def wait(self) -> None:
        """Wait until all reports are sent, or cannot be."""
        with self._lock:
            self._lock.wait_for(lambda: not self._unsent)

    def _send(self, connection: Connection, queue: SimpleQueue[bytes | None]) -> None:
        is_broken = False
        while (report := queue.get()) is not None:
            try:
                if not is_broken:
                    connection.send_bytes(report)
            except (OSError, ValueError) as error:
                # The driver makes the calls again; what they report afterwards is for nobody.
                logger.warning("the driver takes no more reports about calls: %s", error)
                is_broken, self.worker = True, ""
                with suppress(OSError):
                    connection.close()
            with self._lock:
                self._unsent -= 1
                self._lock.notify_all()


def _keep_alive(connection: Connection) -> None:
    """Let the system notice when the driver's machine is gone."""
    with socket.socket(fileno=socket.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


@lru_cache(1)
def calls_of_worker(server: CallServerAddress) -> LeavingCalls:
    """Return the runner of this process's calls, which reports to the driver of a run."""
    calls = LeavingCalls(CallReports(server), MOST_CALLS)
    _runners.append(calls)
    return calls


_runners: list[LeavingCalls] = []


def wait_for_calls() -> None:
    """Wait until all calls of this process have ended and are reported; it is to end."""
    for calls in _runners:
        calls.wait()
