# SPDX-License-Identifier: Apache-2.0
"""The world outside of the application: whoever sends to it, takes from it, comes and goes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import final

import attrs
from confluent_kafka import Producer
from kinesis_server import KinesisHarness
from local_servers import ServedProgram, running
from patience import SECONDS

PAUSE = 2.0
"""Seconds between what one does and does again."""
_FLUSH_SECONDS = 10
KEEP = 100
"""So many files that the application has written are left; older ones are removed."""
SERVED = """
from statefun import *

@function("elsewhere/counter", specs=[ValueSpec("count", IntType)])
def count(ctx, message):
    ctx.storage.count = None if ctx.storage.count else 1
    ctx.send(message_builder("endure/later", "0", str_value=message.as_string()))
"""


@attrs.frozen
class Endpoint:
    """The server of functions elsewhere, which comes and goes."""

    port: int
    absence: timedelta
    """For so long it is away; for twice as long it is there."""


@final
class Outside:
    """Sends records and messages, takes records, and starts and ends the endpoint's server.

    Args:
        folder: has the folders of files.
        kafka: the address of the broker.
        kinesis: the server of streams.
        port: of the playground.
        endpoint: the server of functions elsewhere.
    """

    def __init__(
        self, folder: Path, kafka: str, kinesis: KinesisHarness, port: int, endpoint: Endpoint
    ) -> None:
        self._folder = folder
        self._kafka = Producer({"bootstrap.servers": kafka})
        self._kinesis = kinesis
        self._port = port
        self._endpoint = endpoint
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(step,), daemon=True)
            for step in (
                self._send_records,
                self._send_lines,
                self._post,
                self._take,
                self._come_and_go,
            )
        ]
        self.taken = 0
        """Records of the playground."""
        self.removed = 0
        """Files that the application has written."""
        self.has_come_and_gone = False
        """Whether the endpoint was there, and away, and came again."""
        (folder / "served.py").write_text(SERVED)
        for name in ("in", "out"):
            (folder / name).mkdir()

    def __enter__(self) -> Outside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._kafka.flush(_FLUSH_SECONDS)

    def _run(self, step: Callable[[int], None]) -> None:
        for number in itertools.count():
            with suppress(OSError, HTTPException):  # the application is not up
                step(number)
            if self._end.wait(PAUSE):
                return

    def _send_records(self, number: int) -> None:
        self._kafka.produce("in", str(number), f"kafka {number % 1000}")
        self._kafka.poll(0)
        if number % 4 == 0:
            self._kinesis.put("in", [(f"kinesis {number % 1000}", b"%d" % number)])

    def _send_lines(self, number: int) -> None:
        # Ten lines to a file, which grows meanwhile.
        with (self._folder / "in" / f"{number // 10:09d}").open("a") as file:
            file.write(f"line {number}\n")
        written = sorted(
            (path for path in (self._folder / "out").iterdir() if path.is_file()),
            key=lambda path: path.stat().st_mtime,
        )
        for path in written[:-KEEP]:
            path.unlink()
            self.removed += 1

    def _post(self, number: int) -> None:
        self._request("PUT", f"/endure/passing/posted%20{number % 1000}", b"%d" % number)

    def _take(self, _number: int) -> None:
        while self._request("GET", "/out?wait=0"):
            self.taken += 1

    def begin(self) -> bool:
        """Send the first beat; tell whether the application has it."""
        with suppress(OSError, HTTPException):
            return self._request("PUT", "/endure/beat/0", b"0")
        return False

    def _request(self, method: str, path: str, body: bytes | None = None) -> bool:
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)) as client:
            client.request(method, path, body)
            answer = client.getresponse()
            answer.read()
            return answer.status == HTTPStatus.OK

    def _come_and_go(self, number: int) -> None:
        away = self._endpoint.absence.total_seconds()
        program, log = self._folder / "served.py", self._folder / "served.log"
        server = ServedProgram(program, log, self._endpoint.port, folder=self._folder)
        with running(server):
            self._end.wait(2 * away)
            self.has_come_and_gone = number > 0
        self._end.wait(away)
