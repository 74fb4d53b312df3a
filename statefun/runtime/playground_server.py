# SPDX-License-Identifier: Apache-2.0
"""The playground: messages come in, and records go out, over HTTP on this machine.

For development and tests, as ``io.statefun.playground`` of Stateful Functions 3.x::

    PUT /<namespace>/<type>/<id>    a message; its type is in Content-Type: application/vnd.<typename>
    GET /<topic>                    takes the topic's next record, and waits for it
"""

from __future__ import annotations

import logging
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import attrs

from statefun.module.model import LOOPBACK, MAX_RECORD_SIZE, Module
from statefun.runtime.checkpoint.playground_store import OPEN, PlaygroundStore
from statefun.runtime.rows.envelope import address_key
from statefun.sdk.address import Address, TypeName
from statefun.sdk.errors import DefinitionError, PlatformError, StatefunError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.primitives import StringType

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("statefun")

_VENDOR = "application/vnd."
_WAIT_SECONDS = 30
_LONGEST_WAIT_SECONDS = 600
_IDLE_SECONDS = 60
_MOST_DISCARDED_BYTES = 100_000_000
_LONGEST_NUMBER = 12
"""Digits."""
_TARGET = "/<namespace>/<type>/<id>"


class _RefusedError(Exception):
    """A request that is answered with a status and a text."""

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


@attrs.define
class _Door:
    """What is served at a port."""

    takes_messages: bool = False
    topics: Sequence[str] = ()


class Playground:
    """The servers of a module's playground.

    Args:
        module: declares the ports, and the topics.
        functions: the functions that messages are for.
        store: keeps what is accepted, and what is published.
    """

    def __init__(
        self, module: Module, functions: StatefulFunctions, store: PlaygroundStore
    ) -> None:
        self._functions = functions
        self._store = store
        self._doors: dict[tuple[str, int], _Door] = {}
        for ingress in module.playground_ingresses:
            self._door(ingress.host, ingress.port).takes_messages = True
        for each in module.playground_doors:
            door = self._door(each.host, each.port)
            door.topics = [*door.topics, *each.topics]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Begin to serve.

        Raises:
            PlatformError: if a port is taken.
        """
        with ExitStack() as started:
            for (host, port), door in self._doors.items():
                server = _listening(host, port, self._handler(host, door))
                started.callback(server.server_close)
                thread = threading.Thread(
                    target=server.serve_forever, name=f"statefun-playground-{port}", daemon=True
                )
                thread.start()
                started.callback(thread.join)
                started.callback(server.shutdown)
                OPEN[host, port] = self._store
                started.callback(OPEN.pop, (host, port))
                _tell(host, port, door)
            self._running = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _door(self, host: str, port: int) -> _Door:
        return self._doors.setdefault((host, port), _Door())

    def accept(self, path: str, content_type: str | None, body: bytes) -> None:
        """Accept a message; it is on the disk when this returns."""
        parts = [unquote(part) for part in path.removeprefix("/").split("/")]
        try:
            namespace, name, id_ = parts
            address = Address(f"{namespace}/{name}", id_)
            if not id_:
                raise ValueError("it is empty")
        except (ValueError, DefinitionError):
            text = f"a message goes to {_TARGET}, which {path} is not"
            raise _RefusedError(HTTPStatus.NOT_FOUND, text) from None
        function = self._functions.find(address.typename)
        if function is None:
            hint = self._functions.hint(address.typename)
            text = f"no function {address.typename} is registered{hint}"
            raise _RefusedError(HTTPStatus.NOT_FOUND, text)
        typename, value = _typed(content_type, body)
        if not function.takes(typename):
            text = f"no handler of {address.typename} takes {typename}"
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        self._store.post(address_key(address), typename, value)

    def _handler(self, host: str, door: _Door) -> type[BaseHTTPRequestHandler]:
        playground, store = self, self._store

        class Handler(_Handler):
            is_for_this_machine = host in {LOOPBACK, "::1", "localhost"}

            def has_stopped(self) -> bool:
                return store.is_closed

            @_answering
            def do_PUT(self) -> None:
                if not door.takes_messages:
                    raise _not_allowed(door)
                body = self.body()
                content_type = self.headers.get("Content-Type")
                playground.accept(urlsplit(self.path).path, content_type, body)
                self.answer(HTTPStatus.OK)

            @_answering
            def do_GET(self) -> None:
                if not door.topics:
                    raise _not_allowed(door)
                record = store.take(*_asked(self.path, door.topics))
                if record is None:
                    status = HTTPStatus.NO_CONTENT
                    self.answer(HTTPStatus.SERVICE_UNAVAILABLE if self.has_stopped() else status)
                    return
                try:
                    self.check_that_client_waits()
                    self.answer(HTTPStatus.OK, record.payload)
                except BaseException:
                    store.put_back(record)
                    raise
                store.taken(record)

            @_answering
            def refuse(self) -> None:
                raise _not_allowed(door)

            do_POST = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = refuse  # noqa: N815 - the server's

        return Handler


def _tell(host: str, port: int, door: _Door) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if door.takes_messages:
        logger.info("playground: PUT %s%s sends a message", url, _TARGET)
    for topic in door.topics:
        logger.info("playground: GET %s/%s takes a record", url, topic)


def _listening(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    kind = _Server6 if ":" in host else _Server
    try:
        server = kind((host, port), handler)
    except OSError as error:
        raise PlatformError(
            f"the playground cannot listen at {host}, port {port}: {error.strerror}; give its "
            "ingress or egress another port"
        ) from error
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of errors, except of clients that have gone."""
        del request, client_address
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.warning("playground: a request has failed: %r", error)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _answering(serve: Callable[[Any], None]) -> Callable[[Any], None]:
    """Answer requests that cannot be served with the reason."""

    def do(handler: _Handler) -> None:
        handler.begin()
        try:
            handler.refuse_strangers()
            serve(handler)
        except _RefusedError as refused:
            handler.answer(refused.status, f"{refused}\n".encode(), refused.headers)
        except StatefunError as error:
            if handler.has_stopped():  # a connection that was kept alive has still asked
                handler.answer(HTTPStatus.SERVICE_UNAVAILABLE, b"the application has stopped\n")
                return
            logger.warning("playground: %s", error)
            handler.answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n".encode())

    return do


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    is_for_this_machine = True
    _has_answered = False
    _has_unread_body = False

    def has_stopped(self) -> bool:
        """Tell whether nothing is accepted any more."""
        return False

    def begin(self) -> None:
        """Begin with a request of the connection."""
        length = self.headers.get("Content-Length", "0")
        self._has_answered = False
        self._has_unread_body = length.strip() != "0" or "Transfer-Encoding" in self.headers

    def refuse_strangers(self) -> None:
        """Refuse requests that a page of somebody else causes a browser on this machine to send.

        A name that such a page has made point at this machine is in the header Host.
        """
        if not self.is_for_this_machine:
            return
        origin = self.headers.get("Origin")
        hosts = [self.headers.get("Host", ""), *([urlsplit(origin).netloc] if origin else [])]
        if not all(map(_is_this_machine, hosts)):
            text = "the playground is for this machine only; give its component a host"
            raise _RefusedError(HTTPStatus.FORBIDDEN, text)
        if self.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "the playground is not for pages of others")

    def check_that_client_waits(self) -> None:
        """Notice that the client has gone, who would not get an answer.

        Raises:
            ConnectionResetError: if it has gone.
        """
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError

    def body(self) -> bytes:
        """Read the content of a request."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or "Transfer-Encoding" in self.headers:
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "a message has a Content-Length")
        if len(length) > _LONGEST_NUMBER or int(length) > MAX_RECORD_SIZE:
            text = f"a message has at most {MAX_RECORD_SIZE:,} bytes"
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        content = self.rfile.read(int(length))
        if len(content) < int(length):
            raise ConnectionResetError
        self._has_unread_body = False
        return content

    def _discard_body(self) -> None:
        """Read what nobody wants: a client that still sends would not see the answer."""
        length = self.headers.get("Content-Length", "")
        left = int(length) if length.isdecimal() and len(length) <= _LONGEST_NUMBER else 0
        left = min(left, _MOST_DISCARDED_BYTES)
        while left > 0 and (content := self.rfile.read(min(left, MAX_RECORD_SIZE))):
            left -= len(content)

    def answer(
        self, status: HTTPStatus, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a reply; only the first one of a request counts."""
        if self._has_answered:
            self.close_connection = True
            return
        self._has_answered = True
        if self._has_unread_body:  # it would be taken for the next request
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
        return "statefun"

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def _is_this_machine(host: str) -> bool:
    """Tell whether a header names this machine, or any by its number."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _typed(content_type: str | None, body: bytes) -> tuple[str, bytes]:
    """Return the type and the bytes of a message's value; text without a type is a string."""
    media = (content_type or "").partition(";")[0].strip()
    if not media.lower().startswith(_VENDOR):
        try:
            return StringType.typename, StringType.serializer().serialize(body.decode())
        except UnicodeDecodeError:
            text = f"a value that is no UTF-8 text needs a type: Content-Type: {_VENDOR}<typename>"
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text) from None
    try:
        return str(TypeName.parse(media[len(_VENDOR) :])), body
    except DefinitionError as error:
        raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, error.message) from None


def _asked(path: str, topics: Sequence[str]) -> tuple[str, float]:
    """Return the topic that a request names, and how many seconds it may wait."""
    parts = urlsplit(path)
    topic = unquote(parts.path.removeprefix("/"))
    if topic not in topics:
        text = f"there is no topic {topic!r}; there are {', '.join(topics)}"
        raise _RefusedError(HTTPStatus.NOT_FOUND, text)
    (wait,) = parse_qs(parts.query).get("wait", [str(_WAIT_SECONDS)])[:1]
    if not (wait.isascii() and wait.isdecimal() and len(wait) <= _LONGEST_NUMBER):
        text = f"wait has a whole number of seconds, which {wait!r} is not"
        raise _RefusedError(HTTPStatus.BAD_REQUEST, text)
    return topic, min(int(wait), _LONGEST_WAIT_SECONDS)


def _not_allowed(door: _Door) -> _RefusedError:
    methods = [*(["PUT"] if door.takes_messages else []), *(["GET"] if door.topics else [])]
    text = " and ".join(
        {"PUT": f"PUT {_TARGET} sends a message", "GET": "GET /<topic> takes a record"}[method]
        for method in methods
    )
    return _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, text, Allow=", ".join(methods))
