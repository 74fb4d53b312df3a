# SPDX-License-Identifier: Apache-2.0
"""The base of a driver's HTTP servers: limits requests, and refuses requests of other machines and web sites."""

from __future__ import annotations

import logging
import re
import select
import socket
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import unquote_to_bytes, urlsplit

import attrs

from statefun.module.model import LOOPBACK
from statefun.runtime.connections import Connections, most_connections
from statefun.runtime.request_stream import REQUEST_SECONDS, LargeHeadError, RequestStream
from statefun.sdk.errors import StatefunError
from statefun.sdk.foreign_requests import foreign_header

logger = logging.getLogger("statefun")

LONGEST_NUMBER = 12
"""The largest number of digits that a number in a request may have."""
_LAST_PORT = 65_535
_CHUNK = 1_000_000
_MOST_DISCARDED_BYTES = 100_000_000
_SINGLE_HEADERS = ("Host", "Content-Length", "Content-Type", "Origin", "Sec-Fetch-Site")
"""The headers that the server reads, and that must not occur twice."""
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_WAITING_CONNECTIONS = 1024
"""How many connections may wait until they are accepted; the operating system may have a lower limit."""


@attrs.frozen
class ListenAddress:
    """Where a server listens."""

    host: str
    port: int
    """The port; 0 for any free one."""

    @classmethod
    def parse(cls, value: str | int) -> ListenAddress:
        """Parse ``PORT``, for clients on this machine alone, or ``HOST:PORT``.

        >>> ListenAddress.parse("8083"), ListenAddress.parse("[::]:0")
        (ListenAddress(host='127.0.0.1', port=8083), ListenAddress(host='::', port=0))

        Raises:
            ValueError: if the value is neither.
        """
        host, _, port = str(value).strip().rpartition(":")
        is_number = port.isascii() and port.isdecimal() and len(port) <= LONGEST_NUMBER
        if isinstance(value, bool) or not is_number or int(port) > _LAST_PORT:
            raise ValueError("must be a port, such as 8083, or a host and a port: 0.0.0.0:8083")
        return cls(host.strip("[]") or LOOPBACK, int(port))

    @property
    def url(self) -> str:
        """The URL of the server's root."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class RefusedError(Exception):
    """A request is refused; the HTTP answer has this error's status, headers and text."""

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Server(ThreadingHTTPServer):
    """The server of one port; it is bound to the port at first, and listens later."""

    daemon_threads = True
    request_queue_size = _WAITING_CONNECTIONS
    service = "an HTTP server"
    """The name of the server in the log."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.connections = Connections(most_connections())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or close it if there are too many."""
        if self.connections.admit():
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it is closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error that a request has caused, unless the client has closed its connection."""
        del request, client_address
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.warning("%s: a request has failed: %r", self.service, error)


class Server6(Server):
    """A server at an IPv6 address."""

    address_family = socket.AF_INET6


def answering(serve: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a method that serves a request by calling ``serve``.

    If ``serve`` refuses the request, or raises a StatefunError, the HTTP answer has the reason.
    """

    def do(handler: RequestHandler) -> None:
        handler.begin()
        try:
            handler.refuse_unclear_headers()
            handler.refuse_strangers()
            serve(handler)
        except RefusedError as refused:
            handler.refuse_with(refused.status, str(refused), refused.headers)
        except StatefunError as error:
            if handler.has_stopped():  # a connection that is kept alive may still bring requests
                handler.refuse_with(HTTPStatus.SERVICE_UNAVAILABLE, "the application has stopped")
                return
            logger.warning("%s: %s", handler.service, error)
            handler.refuse_with(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    return do


class RequestHandler(BaseHTTPRequestHandler):
    """Serves one connection, whose requests come one after the other."""

    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS
    disable_nagle_algorithm = True  # the content is written after the headers
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s: %(explain)s\n"
    is_for_this_machine = True
    service = "the server"
    """The name of the server in texts."""
    admission = ""
    """How clients with another ``Host`` could be admitted."""
    most_bytes = 1_000_000
    """The largest size of a request's content, in bytes."""
    raw_requestline: bytes
    """The first line of the request, as Python's server has read it."""
    _has_answered = False
    _has_unread_body = False

    def has_name(self, host: str) -> bool:
        """Return whether requests may name the server so, which is neither localhost nor an IP address."""
        del host
        return not self.is_for_this_machine

    def has_stopped(self) -> bool:
        """Return whether the application has stopped, so that requests must be refused."""
        return False

    def setup(self) -> None:
        """Prepare the connection, so that requests are read within limits of time and size."""
        super().setup()
        self.rfile.close()
        self._connections = cast("Server", self.server).connections
        self.rfile = self._stream = RequestStream(self.connection)

    def handle_one_request(self) -> None:
        """Serve a request; refuse one whose headers are too large."""
        self._stream.begin()
        self._connections.wait(self.connection)
        try:
            super().handle_one_request()
        except LargeHeadError:
            self.close_connection = True
            self.command, self.requestline, self.request_version = "", "", self.protocol_version
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def parse_request(self) -> bool:
        """Parse the head of a request, whose path may be plain UTF-8: to Python, some of its bytes would be blanks."""
        self.raw_requestline = _NOT_ASCII.sub(
            lambda found: b"%%%02X" % found[0][0], self.raw_requestline
        )
        return super().parse_request()

    def begin(self) -> None:
        """Reset the fields about the former request of the connection, before the next request is served."""
        self._stream.end_of_head()
        self._connections.serve(self.connection)
        self._has_answered = False
        length = self.headers.get("Content-Length", "0")
        self._has_unread_body = length != "0" or "Transfer-Encoding" in self.headers

    def refuse_unclear_headers(self) -> None:
        """Refuse a request whose headers another parser could understand differently.

        Else the content of such a request could be served as a request, and its origin could be hidden.

        Raises:
            RefusedError: if the request must be refused.
        """
        unreadable = self._stream.unreadable_header()
        twice = [name for name in _SINGLE_HEADERS if len(self.headers.get_all(name, [])) > 1]
        if unreadable is None and not twice:
            return
        self.close_connection = True  # nobody knows where the content ends
        text = (
            f"a request must have one header {twice[0]}, and has several"
            if unreadable is None
            else f"a header must be a line such as 'Content-Length: 2', and {unreadable.decode('latin-1')!r} is none"
        )
        raise RefusedError(HTTPStatus.BAD_REQUEST, text)

    def refuse_strangers(self) -> None:
        """Refuse requests of other machines, and requests that a page of another web site has sent.

        Raises:
            RefusedError: if the request must be refused.
        """
        header = foreign_header(
            self.headers.get, only_this_machine=self.is_for_this_machine, has_name=self.has_name
        )
        if header is not None:
            text = f"{self.service} answers neither pages of other web sites nor other machines ({header})"
            if self.is_for_this_machine or header.startswith("Host:"):
                text += self.admission
            raise RefusedError(HTTPStatus.FORBIDDEN, text)

    def check_that_client_waits(self) -> None:
        """Check that the client has not closed its connection, so that it can get an answer.

        Raises:
            ConnectionResetError: if the client has closed the connection.
        """
        poll = select.poll()  # select() cannot watch a thousand connections
        poll.register(self.connection, select.POLLIN)
        if poll.poll(0) and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError

    def body(self) -> bytes:
        """Read the content of a request.

        Raises:
            RefusedError: if the length of the content is not given, or too large.
            ConnectionResetError: if the client closes the connection before the end of the content.
        """
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # nobody knows where the content ends
            raise RefusedError(
                HTTPStatus.LENGTH_REQUIRED,
                "a message must have a header Content-Length, and no Transfer-Encoding",
            )
        if len(length) > LONGEST_NUMBER or int(length) > self.most_bytes:
            text = f"a message must have at most {self.most_bytes:,} bytes"
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        content = self.rfile.read(int(length))
        if len(content) < int(length):
            raise ConnectionResetError
        self._has_unread_body = False
        return content

    def _discard_body(self) -> None:
        """Read the rest of a request and drop it: a client that is still sending would not read the answer."""
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() and len(length) <= LONGEST_NUMBER else 0
        remaining = min(size, _MOST_DISCARDED_BYTES)
        while remaining > 0 and (content := self.rfile.read(min(remaining, _CHUNK))):
            remaining -= len(content)

    def answer(
        self, status: HTTPStatus, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send an answer; if the request was answered already, close the connection instead."""
        if self._has_answered:
            self.close_connection = True
            return
        self._has_answered = True
        if self._has_unread_body:  # the server would take it for the next request
            self.close_connection = True
            self._discard_body()
        self.connection.settimeout(REQUEST_SECONDS)
        self.send_response(status)
        named = {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}
        if status == HTTPStatus.NO_CONTENT:
            del named["Content-Type"]
        for name, value in named.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse_with(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer a request that is refused, or that has failed."""
        self.answer(status, f"{text}\n".encode(), headers)

    def version_string(self) -> str:
        """Return the server's name in answers, without a version."""
        return "statefun"

    def log_message(self, *_: object) -> None:
        """Print nothing: the overridden method of Python's server prints a line for each request."""


def path_parts(target: str) -> list[str]:
    """Return the parts of a request's path, decoded.

    Args:
        target: the target of the request, percent-encoded.

    Raises:
        RefusedError: if the path is not UTF-8.
    """
    try:
        path = urlsplit(target).path
        return [unquote_to_bytes(part).decode() for part in path.removeprefix("/").split("/")]
    except ValueError:
        text = f"the path of a request must be UTF-8 text, and {target!r} is not"
        raise RefusedError(HTTPStatus.BAD_REQUEST, text) from None
