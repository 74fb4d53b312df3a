# SPDX-License-Identifier: Apache-2.0
"""A worker's reports about calls that have left their micro-batches."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from queue import SimpleQueue

import attrs

from statefun.engine.call_loop import LeavingCalls
from statefun.protocol.runtime_pb2 import CallReport
from statefun.runtime.calls.call_server import HANDSHAKE, WORKER_READY, CallServerAddress
from statefun.runtime.calls.call_sockets import connect, limited, shut

logger = logging.getLogger("statefun")

MOST_CALLS = 10_000
"""How many calls of a worker process go on outside of micro-batches."""
_PAUSE = timedelta(seconds=30)
"""How long no connection is tried after one that has failed."""
_NAME_BYTES = 100


@attrs.frozen(eq=False)
class _Line:
    """A connection to the driver."""

    worker: str
    """The name under which this process reports."""
    connection: Connection
    reports: SimpleQueue[bytes | None] = attrs.field(factory=SimpleQueue)
    """What is to be sent; None at the end."""


class CallReports:
    """Reports to the driver, from one process.

    A connection that is lost is opened again under another name: the driver has given up the calls that
    were made under the first one.
    """

    def __init__(self, server: CallServerAddress) -> None:
        self._server = server
        self._line: _Line | None = None
        self._is_connecting = False
        self._next_attempt = 0.0
        """When to try to connect again, in seconds of the monotonic clock."""
        self._unsent = 0
        self._changed = threading.Condition()

    @property
    def worker(self) -> str:
        """The name under which this process reports; empty while there is no connection."""
        line = self._line
        return "" if line is None else line.worker

    def open(self) -> bool:
        """Return whether there is a connection to the driver; begin to connect if there is none.

        The caller runs the loop of all coroutines, so it does not wait for the network.
        """
        with self._changed:
            if self._line is not None:
                return True
            if not self._is_connecting and time.monotonic() >= self._next_attempt:
                self._is_connecting = True
                _begin(self._connect)
            return False

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Report what a call has come to; a thread sends it."""
        report = CallReport(address=key, attempt=attempt, result=result or b"").SerializeToString()
        with self._changed:
            if self._line is not None:  # else the driver has given the call up
                self._unsent += 1
                self._line.reports.put(report)

    def wait(self) -> None:
        """Wait until all reports are sent, or cannot be."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unsent)

    def _connect(self) -> None:
        """Connect to the driver, and wait for the end of the connection."""
        try:
            line = self._new_line()
        except (OSError, EOFError, ValueError, AssertionError, AuthenticationError) as error:
            logger.warning(
                "reports about calls cannot be sent to the driver, %s port %d: %s; micro-batches wait "
                "for all calls of this worker",
                self._server.host,
                self._server.port,
                error or type(error).__name__,
            )
            line = None
        with self._changed:
            self._line, self._is_connecting = line, False
            self._next_attempt = time.monotonic() + _PAUSE.total_seconds()
            self._changed.notify_all()
        if line is None:
            return
        _begin(lambda: self._send(line))
        with suppress(OSError, EOFError):
            line.connection.recv_bytes(
                _NAME_BYTES
            )  # the driver sends nothing: it waits for the end
        with self._changed:
            self._line, self._next_attempt = None, 0.0
        shut(line.connection)
        line.reports.put(None)

    def _new_line(self) -> _Line:
        worker, key = uuid.uuid4().hex, self._server.key
        connection = connect(self._server.host, self._server.port, HANDSHAKE)
        try:
            with limited(connection, HANDSHAKE):
                answer_challenge(connection, key)
                deliver_challenge(connection, key)
                connection.send_bytes(worker.encode())
                if connection.recv_bytes(_NAME_BYTES) != WORKER_READY:
                    raise OSError("the driver is not ready")
        except BaseException:
            connection.close()
            raise
        return _Line(worker, connection)

    def _send(self, line: _Line) -> None:
        """Send reports until the connection ends; the driver makes the calls of others again."""
        while (report := line.reports.get()) is not None:
            try:
                line.connection.send_bytes(report)
            except (OSError, ValueError) as error:
                logger.warning("the driver takes no more reports about calls: %s", error)
                shut(line.connection)
            with self._changed:
                self._unsent -= 1
                self._changed.notify_all()
        line.connection.close()


def _begin(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="statefun reports", daemon=True).start()


@lru_cache(1)
def calls_of_worker(server: CallServerAddress) -> LeavingCalls:
    """Return the runner of this process's calls, which reports to the driver of a run."""
    calls = LeavingCalls(CallReports(server), MOST_CALLS)
    _runners[:] = [calls]  # nobody waits for reports of an earlier run
    return calls


_runners: list[LeavingCalls] = []


def wait_for_calls() -> None:
    """Wait until all calls of this process have ended and are reported; it is to end."""
    for calls in _runners:
        calls.wait()
