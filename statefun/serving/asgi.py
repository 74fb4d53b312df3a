# SPDX-License-Identifier: Apache-2.0
"""Functions as an ASGI application: the request-reply protocol over HTTP, without a framework.

The application follows ASGI 3.0, and the HTTP requests of Stateful Functions 3.x: a runtime posts
a request to any path, as ``application/octet-stream``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from statefun.sdk.errors import DefinitionError, RequestError, UnknownFunctionError
from statefun.sdk.foreign_requests import foreign_header
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.sdk.request_reply import RequestReplyHandler

logger = logging.getLogger("statefun")

MAX_REQUEST_BYTES = 128 * 1024 * 1024
"""The default limit of a request's size, in bytes: room for two values of the largest size (64 MiB)."""
HEALTH = "/health"
_READ_BEFORE_REFUSAL = 1024 * 1024
"""How much of a denied request is read, in bytes.

A system resets a connection that is closed with unread content, and the client may then lose the reply. See RFC 9112,
section 9.6."""
_BYTES = "application/octet-stream"

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
_Reply = tuple[HTTPStatus, bytes, dict[str, str]]
"""Status, content and further headers of a reply."""
AsgiApplication = Callable[[Event, Receive, Send], Awaitable[None]]
"""An ASGI application: ``await application(scope, receive, send)``."""


def asgi(
    functions: StatefulFunctions = default_functions,
    *,
    max_request_bytes: int = MAX_REQUEST_BYTES,
    only_this_machine: bool = False,
) -> AsgiApplication:
    """Return an ASGI application that serves functions to a runtime of Stateful Functions.

    Any ASGI server on asyncio runs it: ``uvicorn.run(statefun.asgi(functions))``. A runtime posts to
    any path; ``GET /health`` shows whether the server runs. A plain function blocks the server while
    it runs; a coroutine function does not. The application denies requests that a browser
    sends for a web page.

    Args:
        functions: the functions to serve; by default, the functions that ``@function`` has registered.
        max_request_bytes: the size of the largest request that is accepted (default 128 MiB).
        only_this_machine: whether to deny requests whose header ``Host`` is neither ``localhost``
            nor an IP address. Set the argument if the server listens on this machine only, and no
            proxy in front of the server passes on the ``Host`` of its own clients.

    Raises:
        DefinitionError: if an argument is not of the described form.

    >>> from statefun import StatefulFunctions
    >>> application = asgi(StatefulFunctions())
    """
    if not (isinstance(max_request_bytes, int) and max_request_bytes > 0):
        raise DefinitionError(
            f"max_request_bytes must be a positive number, not {max_request_bytes!r}"
        )
    handler = RequestReplyHandler(functions)

    async def application(scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            if not len(functions):
                logger.warning(
                    "there are no functions to serve: each request gets an error as its reply"
                )
            await _live(receive, send)
        elif scope["type"] == "http":
            try:
                reply = _refusal(scope, only_this_machine=only_this_machine)
                if reply is None:
                    reply = await _answer(handler, receive, max_request_bytes)
                else:
                    await _body(receive, _READ_BEFORE_REFUSAL)
            except ConnectionResetError:
                return  # the client has closed the connection
            await _send_reply(send, *reply)
        else:
            raise NotImplementedError(f"this server serves HTTP only, not {scope['type']}")

    return application


def _refusal(scope: Event, *, only_this_machine: bool) -> _Reply | None:
    """Return the reply to a health check or a denied request; None for a request that calls a function."""
    method, path = scope["method"], scope["path"]
    if path == HEALTH and method in {"GET", "HEAD"}:
        return HTTPStatus.OK, b"ok\n", {}  # the server leaves the content out for HEAD
    if method != "POST":
        return HTTPStatus.METHOD_NOT_ALLOWED, b"a request must be a POST\n", {"allow": "POST"}
    headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]}
    foreign = foreign_header(
        lambda name: headers.get(name.lower()), only_this_machine=only_this_machine
    )
    if foreign is not None or "origin" in headers:  # no runtime sends an Origin
        status = HTTPStatus.FORBIDDEN
        text = (
            f"only a runtime may call functions, not a web page ({foreign or 'there is an Origin'})"
        )
        if only_this_machine:
            text += (
                "; for other machines listen at another --host, or let a proxy send its own Host"
            )
    elif headers.get("content-type", "").partition(";")[0].strip().lower() != _BYTES:
        status, text = (
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"a request must have Content-Type: {_BYTES}",
        )
    else:
        return None
    # The content of the request may not be read to its end.
    return status, f"{text}\n".encode(), {"connection": "close"}


async def _answer(handler: RequestReplyHandler, receive: Receive, limit: int) -> _Reply:
    """Read a request, call its function, and return the reply."""
    request = await _body(receive, limit)
    if request is None:
        text = f"a request must have at most {limit:,} bytes\n"
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text.encode(), {"connection": "close"}
    return await _reply_to(handler, request)


async def _reply_to(handler: RequestReplyHandler, request: bytes) -> _Reply:
    try:
        reply = await handler.handle_async(request)
    except UnknownFunctionError as error:
        logger.warning("a request is answered with an error: %s", error)
        return HTTPStatus.NOT_FOUND, f"{error}\n".encode(), {}
    except RequestError as error:
        logger.warning("a request is answered with an error: %s", error)
        return HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), {}
    except BaseException as error:
        logger.exception(
            "the function of %s has failed; the runtime will send the messages again",
            handler.target_of(request),
        )
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            raise  # it may be the server that ends the call
        return HTTPStatus.INTERNAL_SERVER_ERROR, b"a function has failed\n", {}
    return HTTPStatus.OK, reply, {"content-type": _BYTES}


async def _body(receive: Receive, limit: int) -> bytes | None:
    """Read the content of a request; return None if the content is too large.

    Raises:
        ConnectionResetError: if the client has closed the connection.
    """
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ConnectionResetError
        part = event.get("body", b"")
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
        more = event.get("more_body", False)
    return b"".join(parts)


async def _send_reply(
    send: Send, status: HTTPStatus, content: bytes, headers: dict[str, str]
) -> None:
    fields = {"content-type": "text/plain; charset=utf-8", **headers}
    fields["content-length"] = str(len(content))
    raw = [(name.encode(), text.encode()) for name, text in fields.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": raw})
    await send({"type": "http.response.body", "body": content})


async def _live(receive: Receive, send: Send) -> None:
    """Confirm the server's start and end (ASGI's lifespan events); nothing else happens then."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
