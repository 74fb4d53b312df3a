# SPDX-License-Identifier: Apache-2.0
"""The playground: clients on this machine send messages to functions and read records, over HTTP.

For development and tests, as ``io.statefun.playground`` of Stateful Functions 3.x::

    PUT /<namespace>/<type>/<id>    a message; its type is in Content-Type: application/vnd.<typename>
    GET /<topic>                    returns and removes the next record; ?wait=5 waits 5 seconds for it
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import attrs

from statefun.engine.address_keys import address_key
from statefun.module.location import Location
from statefun.module.model import MAX_RECORD_SIZE, Module, PlaygroundDoor, PlaygroundIngress
from statefun.runtime.checkpoint.playground_store import OPEN, PlaygroundStore
from statefun.runtime.http_server import (
    LONGEST_NUMBER,
    RefusedError,
    RequestHandler,
    Server,
    Server6,
    answering,
    path_parts,
)
from statefun.runtime.posted_messages import TARGET, PostedMessages
from statefun.sdk.address import Address
from statefun.sdk.errors import PlatformError
from statefun.sdk.foreign_requests import is_local_name, is_this_machine
from statefun.sdk.functions import StatefulFunctions

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("statefun")

_LONGEST_WAIT_SECONDS = 600
_LATER = {"Retry-After": "1"}
"""The header that says in how many seconds a client may try again."""
_STOP_SECONDS = 0.1
"""The time between two checks of a server whether it must stop."""


@attrs.define
class _Door:
    """What clients may do at a port of the playground: send messages to functions, and read topics."""

    location: Location
    """Where a module file declares the first ingress or egress that has the port."""
    takes_messages: bool = False
    topics: Sequence[str] = ()
    hosts: frozenset[str] = frozenset()
    """Names by which clients may name the port, besides those of local networks."""


class Playground:
    """The HTTP servers of an application's playground, one for each port.

    Args:
        module: declares the ports, and the topics.
        functions: the functions to which messages are sent.
        store: stores accepted messages, and published records.
    """

    def __init__(
        self, module: Module, functions: StatefulFunctions, store: PlaygroundStore
    ) -> None:
        self._functions = functions
        self._messages = PostedMessages(functions)
        self._store = store
        self._doors: dict[tuple[str, int], _Door] = {}
        for ingress in module.playground_ingresses:
            door = self._door(ingress, ingress.location)
            door.takes_messages = True
        for egress in module.connector_egresses:
            if isinstance(egress.settings, PlaygroundDoor):
                each = egress.settings
                door = self._door(each, egress.location)
                door.topics = [*door.topics, *each.topics]
        self._listen: list[Callable[[], None]] = []
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Bind the ports; the servers accept requests once the query plans its first micro-batch.

        Raises:
            PlatformError: if a port is taken.
        """
        with ExitStack() as opened_ports:
            for (host, port), door in self._doors.items():
                server = (Server6 if ":" in host else Server)(
                    (host, port), self._handler(host, door), bind_and_activate=False
                )
                server.service = "the playground"
                opened_ports.callback(server.server_close)
                with _port_in_errors(host, port):
                    server.server_bind()
                self._listen.append(partial(self._serve, server, host, port, door))
                OPEN[host, port] = self._store
                opened_ports.callback(OPEN.pop, (host, port))
            self._running = opened_ports.pop_all()
        self._store.when_opened(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _open(self) -> None:
        for listen in self._listen:
            listen()

    def _serve(self, server: Server, host: str, port: int, door: _Door) -> None:
        with _port_in_errors(host, port):
            server.server_activate()
        thread = threading.Thread(
            target=server.serve_forever,
            args=(_STOP_SECONDS,),
            name=f"statefun-playground-{port}",
            daemon=True,
        )
        thread.start()
        self._running.callback(thread.join)
        self._running.callback(server.shutdown)
        _log_ready(host, port, door)

    def _door(self, declared: PlaygroundIngress | PlaygroundDoor, location: Location) -> _Door:
        door = self._doors.setdefault((declared.host, declared.port), _Door(location))
        door.hosts |= set(declared.hosts)
        return door

    def accept(self, path: Sequence[str], content_type: str | None, body: bytes) -> None:
        """Accept a message to a function; when this method returns, the message is on the disk.

        Args:
            path: the parts of the address.
            content_type: the header that names the value's type.
            body: the value.

        Raises:
            RefusedError: if no function accepts such a message, or too many messages wait to be read.
        """
        address, typename, value = self._messages.checked(path, content_type, body)
        stored = Address(self._functions.stored_name(address.typename), address.id)
        if not self._store.post(address_key(stored), typename, value):
            text = (
                "too many messages wait, since the application is paused or reads them slower than they come; send "
                "the message again later"
            )
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text, **_LATER)

    def _handler(self, host: str, door: _Door) -> type[RequestHandler]:
        playground, store = self, self._store

        class Served(RequestHandler):
            is_for_this_machine = is_this_machine(host)
            service = "the playground"
            admission = _admission(host, door)
            most_bytes = MAX_RECORD_SIZE

            def has_name(self, host: str) -> bool:
                is_listed = host.removesuffix(".") in door.hosts
                return is_listed or (not self.is_for_this_machine and is_local_name(host))

            def has_stopped(self) -> bool:
                return store.is_closed

            @answering
            def do_PUT(self) -> None:  # noqa: N802 - the server's
                if not door.takes_messages:
                    raise _not_allowed(door)
                body = self.body()
                content_type = self.headers.get("Content-Type")
                playground.accept(path_parts(self.path), content_type, body)
                self.answer(HTTPStatus.OK)

            @answering
            def do_GET(self) -> None:  # noqa: N802 - the server's
                if not door.topics:
                    raise _not_allowed(door)
                topic, wait = _topic_and_wait(self.path, door.topics)
                record = store.take(topic, wait, self.check_that_client_waits)
                if record is None:
                    status = HTTPStatus.NO_CONTENT
                    self.answer(HTTPStatus.SERVICE_UNAVAILABLE if self.has_stopped() else status)
                    return
                try:
                    self.answer(HTTPStatus.OK, record.payload)
                except BaseException:
                    store.put_back(record)
                    raise
                store.taken(record)

            @answering
            def refuse(self) -> None:
                raise _not_allowed(door)

            do_POST = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = refuse  # noqa: N815 - the server's

        return Served


def _admission(host: str, door: _Door) -> str:
    if is_this_machine(host):
        return (
            f"; if other machines or containers may use the playground, add host: 0.0.0.0 to the spec of {door.location}; "
            "if a proxy on this machine uses another name, add that, such as hosts: [playground.example.com]"
        )
    return (
        f"; if the playground has this name, add it to the spec of {door.location}, such as "
        "hosts: [playground.example.com]"
    )


def _log_ready(host: str, port: int, door: _Door) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    parts = [f"PUT {url}{TARGET} sends a message"] if door.takes_messages else []
    parts += [f"GET {url}/{topic} takes a record" for topic in door.topics]
    others = (
        "; only for clients on this machine, since its spec has no host: 0.0.0.0"
        if is_this_machine(host)
        else ""
    )
    logger.info("the playground is ready: %s%s", ", ".join(parts), others)


@contextmanager
def _port_in_errors(host: str, port: int) -> Iterator[None]:
    """Replace errors of the operating system by errors that name the port."""
    try:
        yield
    except OSError as error:
        raise PlatformError(
            f"the playground cannot listen at {host}, port {port}: {error.strerror}; give its "
            "ingress or egress another port"
        ) from error


def _topic_and_wait(target: str, topics: Sequence[str]) -> tuple[str, float]:
    """Return the topic that a request names, and for how many seconds the request may wait for a record."""
    topic = "/".join(path_parts(target))
    if topic not in topics:
        text = f"there is no topic {topic!r}; the topics are {', '.join(topics)}"
        raise RefusedError(HTTPStatus.NOT_FOUND, text)
    (wait,) = parse_qs(urlsplit(target).query).get("wait", ["0"])[:1]
    if not (wait.isascii() and wait.isdecimal() and len(wait) <= LONGEST_NUMBER):
        text = f"wait must be a whole number of seconds, but is {wait!r}"
        raise RefusedError(HTTPStatus.BAD_REQUEST, text)
    return topic, min(int(wait), _LONGEST_WAIT_SECONDS)


def _not_allowed(door: _Door) -> RefusedError:
    methods = [*(["PUT"] if door.takes_messages else []), *(["GET"] if door.topics else [])]
    text = " and ".join(
        {"PUT": f"PUT {TARGET} sends a message", "GET": "GET /<topic> takes a record"}[method]
        for method in methods
    )
    return RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, text, Allow=", ".join(methods))
