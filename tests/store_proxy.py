# SPDX-License-Identifier: Apache-2.0
"""A proxy before an object store, in this process: it notes requests, is slow, and answers with faults."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, urlsplit

import attrs
from patience import SECONDS

_ERROR = '<?xml version="1.0"?><Error><Code>{}</Code><Message>from a test</Message></Error>'


@attrs.frozen
class Request:
    """A request to the store."""

    method: str
    path: str
    """The path in the bucket; of a list, that of the listed folder."""
    is_list: bool = False
    is_conditional: bool = False
    """Whether the store is asked to create an object only if there is none."""

    def __str__(self) -> str:
        return f"{'LIST' if self.is_list else self.method} {self.path}"


@attrs.frozen
class Fault:
    """An answer that the store has not given."""

    status: int = 0
    """The status of HTTP; 0 ends the connection without an answer."""
    code: str = ""
    """The code of the error."""
    is_handled: bool = False
    """Whether the store handles the request all the same, so that its answer alone is lost."""
    is_cut: bool = False
    """Whether the store's own answer is cut in its middle; nothing else counts then."""
    is_hole: bool = False
    """Whether the request is never answered, nor its body read, and its connection stays open; nothing else counts then."""


class StoreProxy:
    """Passes requests on to the store at a port of this machine."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.latency = timedelta()
        """How long each request takes besides."""
        self.requests: list[Request] = []
        """All requests, in their order."""
        self.fault: Callable[[Request], Fault | None] = lambda _: None
        """Returns the fault with which a request is answered, if any."""
        proxy = self

        class Handler(_Handler):
            store = proxy

        self.closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections, and end those that a fault has left open."""
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def store_proxy(target: int) -> Iterator[StoreProxy]:
    """Run a proxy before the store at a port of this machine during the block."""
    proxy = StoreProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()


class _Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection, with one connection to the store."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: StoreProxy
    _connection: HTTPConnection | None = None

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
        """Log nothing."""

    def handle(self) -> None:
        """Handle requests until the client ends the connection, in whatever way."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def _handle(self) -> None:
        request = self._request()
        self.store.requests.append(request)
        fault = self.store.fault(request)
        if fault is not None and fault.is_hole:
            self.store.closed.wait()
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(self.store.latency.total_seconds())
        if fault is not None and not fault.is_cut:
            if fault.is_handled:
                self._pass_on(body).read()
            self._fail(fault)
            return
        answer = self._pass_on(body)
        content = answer.read()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault is not None else content)
        self.close_connection |= fault is not None

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815 - as the base class has it

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        path = parts.path.strip("/").partition("/")[2]
        query = parse_qs(parts.query, keep_blank_values=True)
        if "list-type" in query:
            return Request(self.command, query.get("prefix", [""])[0], is_list=True)
        return Request(self.command, path, is_conditional="If-None-Match" in self.headers)

    def _pass_on(self, body: bytes) -> HTTPResponse:
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self.store.target, timeout=SECONDS)
        connection = self._connection
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in {"connection", "expect"}:
                connection.putheader(name, value)
        connection.endheaders(body or None)
        return connection.getresponse()

    def _fail(self, fault: Fault) -> None:
        if not fault.status:
            self.close_connection = True
            return
        content = b"" if self.command == "HEAD" else _ERROR.format(fault.code).encode()
        self.send_response_only(fault.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def finish(self) -> None:
        """End the connection to the store, too."""
        with contextlib.suppress(OSError):
            super().finish()
        if self._connection is not None:
            self._connection.close()


def below(requests: list[Request], folder: str) -> list[str]:
    """Return the requests to a folder, with paths in it, as text."""
    found = (attrs.evolve(each, path=each.path.removeprefix(folder)) for each in requests)
    return [str(each) for each in cast("Iterator[Request]", found)]
