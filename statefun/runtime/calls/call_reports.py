# SPDX-License-Identifier: Apache-2.0
"""Reports of a worker process to the driver about calls that go on after their micro-batch has ended."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from itertools import count
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from queue import PriorityQueue
from typing import NamedTuple

import attrs
from google.protobuf.message import DecodeError

from statefun.protocol.runtime_pb2 import CallAnswer, CallReport
from statefun.runtime.calls.call_server import HANDSHAKE, WORKER_READY, CallServerAddress
from statefun.runtime.calls.call_sockets import connect, limited, shut

logger = logging.getLogger("statefun")

_PAUSE = timedelta(seconds=30)
"""How long a worker waits after a failed attempt to connect before it tries again."""
_MOST_UNSENT = 64 * 1024 * 1024
"""If the reports that wait to be sent have so many bytes, no further call leaves its micro-batch."""
_NAME_BYTES = 100
_ANSWER_BYTES = 1000


class _Report(NamedTuple):
    """A report that waits to be sent; reports are sent in the order of their first two attributes."""

    has_result: bool
    """Whether the report has the result of a call, which may be large: other reports are sent before."""
    number: int
    content: bytes
    sent: Future[None]
    """Is done when the report is sent, or cannot be sent any more."""


@attrs.frozen(eq=False)
class _Line:
    """A worker's connection to the driver, and the reports that wait to be sent."""

    worker: str
    """The name of this worker process in its reports to the driver."""
    connection: Connection
    reports: PriorityQueue[_Report] = attrs.field(factory=PriorityQueue)
    """The reports to send; an empty one ends the thread that sends them."""


class CallReports:
    """Sends the reports of this process to the driver.

    After a lost connection, this process connects again, under another name. The driver then expects no more reports
    about calls that were made under the former name, since these calls are made again.
    """

    def __init__(self, server: CallServerAddress) -> None:
        self._server = server
        self._line: _Line | None = None
        self._is_connecting = False
        self._next_attempt = 0.0
        """The time from which on the process may try to connect again, in seconds of the monotonic clock."""
        self._asked: dict[str, Future[bool]] = {}
        """The driver's answers for which calls wait, as futures, by the names of the calls."""
        self._numbers = count(1)
        """The numbers of the reports, in order."""
        self._unsent = 0
        self._unsent_bytes = 0
        self._changed = threading.Condition()

    @property
    def worker(self) -> str:
        """The name of this process in its reports to the driver; empty while it has no connection."""
        line = self._line
        return "" if line is None else line.worker

    def open(self) -> bool:
        """Return whether this process is connected to the driver and has room for reports; connect it if needed.

        There is no room while too many results wait here: the driver takes no more before a micro-batch has read some.

        This method runs on the event loop of all coroutines, so it does not wait for the network.
        """
        with self._changed:
            if self._line is not None:
                return self._unsent_bytes < _MOST_UNSENT
            if not self._is_connecting and time.monotonic() >= self._next_attempt:
                self._is_connecting = True
                _begin(self._connect)
            return False

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Queue the report of a call's result, which is None if the call has none."""
        self._put(CallReport(address=key, attempt=attempt, result=result or b""))

    def left(self, attempt: str) -> Future[bool]:
        """Ask the driver whether a micro-batch that a call has left is staged; see :class:`CallReporter`."""
        answer = Future[bool]()
        answer.set_running_or_notify_cancel()  # nobody can cancel it
        with self._changed:
            if self._line is None:  # the driver has given the call up
                answer.set_result(False)
            else:
                self._asked[attempt] = answer
                self._put(CallReport(attempt=attempt, waits=True))
        return answer

    def begun(self, attempt: str) -> Future[None]:
        """Queue the report that a call, which was lost before, runs now; see :class:`CallReporter`."""
        return self._put(CallReport(attempt=attempt, begun=True))

    def accompanied(self, attempt: str) -> Future[None]:
        """Queue the report that a call has ended, or no longer runs alone; see :class:`CallReporter`."""
        return self._put(CallReport(attempt=attempt, accompanied=True))

    def ends(self) -> Future[None]:
        """Queue the report that this process was ordered to end, which is an orderly end.

        The driver then seldom blames a call for the end. The future is done when the report is sent.
        """
        return self._put(CallReport(ends=True))

    def _put(self, report: CallReport) -> Future[None]:
        has_result, number = bool(report.result), next(self._numbers)
        waiting = _Report(has_result, number, report.SerializeToString(), Future())
        with self._changed:
            if self._line is None:  # the driver has given the call up
                waiting.sent.set_result(None)
            else:
                self._unsent += 1
                self._unsent_bytes += len(waiting.content)
                self._line.reports.put(waiting)
        return waiting.sent

    def wait(self) -> None:
        """Wait until all reports are sent, or cannot be sent because the connection has ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unsent)

    def _connect(self) -> None:
        """Connect to the driver, and wait until the connection ends."""
        try:
            line = self._new_line()
        except (OSError, EOFError, ValueError, AssertionError, AuthenticationError) as error:
            logger.warning(
                "this worker cannot connect to the driver at %s, port %d, to report about long calls: %s; its "
                "micro-batches wait for all calls, however long they take",
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
        with suppress(OSError, EOFError, DecodeError):
            while True:
                self._take(CallAnswer.FromString(line.connection.recv_bytes(_ANSWER_BYTES)))
        with self._changed:
            self._line, self._next_attempt = None, 0.0
            for name in [*self._asked]:
                self._take(CallAnswer(attempt=name))
        shut(line.connection)
        line.reports.put(_Report(True, next(self._numbers), b"", Future()))  # after all others

    def _take(self, answer: CallAnswer) -> None:
        with self._changed:
            asked = self._asked.pop(answer.attempt, None)
        if asked is not None:
            asked.set_result(answer.left)

    def _new_line(self) -> _Line:
        worker, key = uuid.uuid4().hex, self._server.key
        connection = connect(self._server.host, self._server.port, HANDSHAKE)
        try:
            with limited(connection, HANDSHAKE):
                answer_challenge(connection, key)
                deliver_challenge(connection, key)
                connection.send_bytes(worker.encode())
                if connection.recv_bytes(_NAME_BYTES) != WORKER_READY:
                    raise OSError("the driver has not answered that it is ready")
        except BaseException:
            connection.close()
            raise
        return _Line(worker, connection)

    def _send(self, line: _Line) -> None:
        """Send reports until the connection ends; calls whose reports are not sent are made again."""
        unsent, cause = 0, ""
        while (report := line.reports.get()).content:
            try:
                line.connection.send_bytes(report.content)
            except (OSError, ValueError) as error:
                unsent, cause = unsent + 1, cause or str(error)
                shut(line.connection)
            report.sent.set_result(None)
            with self._changed:
                self._unsent -= 1
                self._unsent_bytes -= len(report.content)
                self._changed.notify_all()
        line.connection.close()
        if unsent:
            logger.warning(
                "%s reports about calls could not be sent to the driver: %s; the calls are made again",
                f"{unsent:,}",
                cause,
            )


def _begin(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="statefun reports", daemon=True).start()
