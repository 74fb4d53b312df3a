# SPDX-License-Identifier: Apache-2.0
"""How the playground reads HTTP requests, and answers requests that it refuses."""

from __future__ import annotations

import logging
import select
import socket
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from statefun.module.location import Location
from statefun.module.model import MAX_RECORD_SIZE
from statefun.sdk.errors import StatefunError
from statefun.sdk.foreign_requests import foreign_header

logger = logging.getLogger("statefun")

LONGEST_NUMBER = 12
"""The largest number of digits that a number in a request may have."""
_IDLE_SECONDS = 60
_MOST_DISCARDED_BYTES = 100_000_000
_WAITING_CONNECTIONS = 1024
"""How many connections may wait until they are accepted; the operating system may have a lower limit."""


class RefusedError(Exception):
    """A request is refused; the HTTP answer has this error's status, headers and text."""

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Server(ThreadingHTTPServer):
    """The server of one port of the playground; it is bound to the port at first, and listens later."""

    daemon_threads = True
    request_queue_size = _WAITING_CONNECTIONS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error that a request has caused, unless the client has closed its connection."""
        del request, client_address
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.warning("playground: a request has failed: %r", error)


class Server6(Server):
    """A port of the playground at an IPv6 address."""

    address_family = socket.AF_INET6


def answering(serve: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a method that serves a request by calling ``serve``.

    If ``serve`` refuses the request, or raises a StatefunError, the HTTP answer has the reason.
    """

    def do(handler: PlaygroundHandler) -> None:
        handler.begin()
        try:
            handler.refuse_strangers()
            serve(handler)
        except RefusedError as refused:
            handler.answer(refused.status, f"{refused}\n".encode(), refused.headers)
        except StatefunError as error:
            if handler.has_stopped():  # a connection that is kept alive may still bring requests
                handler.answer(HTTPStatus.SERVICE_UNAVAILABLE, b"the application has stopped\n")
                return
            logger.warning("playground: %s", error)
            handler.answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n".encode())

    return do


class PlaygroundHandler(BaseHTTPRequestHandler):
    """Serves one connection, whose requests come one after the other."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True  # the content is written after the headers
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s: %(explain)s\n"
    is_for_this_machine = True
    location: Location
    """Where a module file declares the ingress or egress that has the port."""
    _has_answered = False
    _has_unread_body = False

    def has_stopped(self) -> bool:
        """Return whether the application has stopped, so that requests must be refused."""
        return False

    def begin(self) -> None:
        """Reset the notes about the former request of the connection, before the next request is served."""
        lengths = self.headers.get_all("Content-Length", ["0"])
        self._has_answered = False
        self._has_unread_body = lengths != ["0"] or "Transfer-Encoding" in self.headers

    def refuse_strangers(self) -> None:
        """Refuse requests of other machines, and requests that a page of another web site has sent.

        Raises:
            RefusedError: if the request must be refused.
        """
        header = foreign_header(self.headers.get, only_this_machine=self.is_for_this_machine)
        if header is not None:
            text = f"the playground answers neither pages of other web sites nor other machines ({header})"
            if self.is_for_this_machine:
                text += (
                    f"; if other machines or containers may use the playground, add host: 0.0.0.0 to the spec "
                    f"of {self.location}"
                )
            raise RefusedError(HTTPStatus.FORBIDDEN, text)

    def check_that_client_waits(self) -> None:
        """Check that the client has not closed its connection, so that it can get an answer.

        Raises:
            ConnectionResetError: if the client has closed the connection.
        """
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError

    def body(self) -> bytes:
        """Read the content of a request.

        Raises:
            RefusedError: if the length of the content is not given, or too large.
            ConnectionResetError: if the client closes the connection before the end of the content.
        """
        length, *others = self.headers.get_all("Content-Length", [""])
        if others or not length.isdecimal() or "Transfer-Encoding" in self.headers:
            raise RefusedError(
                HTTPStatus.LENGTH_REQUIRED, "a message must have exactly one header Content-Length"
            )
        if len(length) > LONGEST_NUMBER or int(length) > MAX_RECORD_SIZE:
            text = f"a message must have at most {MAX_RECORD_SIZE:,} bytes"
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
        while remaining > 0 and (content := self.rfile.read(min(remaining, MAX_RECORD_SIZE))):
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
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        """Return the server's name in answers, without a version."""
        return "statefun"

    def log_message(self, *_: object) -> None:
        """Print nothing: the overridden method of Python's server prints a line for each request."""


def path_parts(target: str) -> list[str]:
    """Return the parts of a request's path, decoded; the path may be percent-encoded or plain UTF-8.

    Raises:
        RefusedError: if the path is not UTF-8.
    """
    try:
        path = urlsplit(target).path.encode("latin-1")  # http.server has decoded it
        return [unquote_to_bytes(part).decode() for part in path.removeprefix(b"/").split(b"/")]
    except ValueError:
        text = f"the path of a request must be UTF-8 text, and {target!r} is not"
        raise RefusedError(HTTPStatus.BAD_REQUEST, text) from None
