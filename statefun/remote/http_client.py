# SPDX-License-Identifier: Apache-2.0
"""Posts HTTP requests to one endpoint by aiohttp, over connections that stay open between requests."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import aiohttp
from yarl import URL

from statefun.module.model import Endpoint, Tls
from statefun.module.urls import is_https, socket_file
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.shown_uris import without_secrets

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

BYTES = "application/octet-stream"
"""The content type of requests and replies."""
_BUFFERED = 64 * 1024
"""How many bytes of a request fit into the buffers of a connection."""
_BY_PERMITS = 0
"""The connector's own limit, none: permits limit the connections."""
_FIRST_BYTES = 2000
"""How many bytes of an answer that is too large are kept, at most, for the text of an error."""
_HAS_NEW_CONNECTION = ContextVar("has_new_connection", default=False)
"""Whether the present request gets a new connection; aiohttp passes no arguments on to connectors."""
_NO_CONTENT = (
    "has broken the connection off after the head of its answer, which does not say how long its content is; "
    "a server has to send Content-Length, also for an answer without content"
)


class NoConnectionError(Exception):
    """The endpoint was not reached; the error's text continues "endpoint <URL> ..."."""


class WrongUrlError(NoConnectionError):
    """The URL of a function has a host that cannot exist."""


class NoReplyError(Exception):
    """The endpoint was reached, but has not answered; the error's text continues "endpoint <URL> ..."."""

    def __init__(self, text: str, *, is_broken: bool = False) -> None:
        super().__init__(text)
        self.is_broken = is_broken
        """Whether the connection broke; False if the time was up."""


class _Sending:
    """Sends a large request in parts, and cancels the task that sends it when that takes too long.

    aiohttp has no time limit for sending. Small requests need none: they fit into a connection's buffers.
    """

    def __init__(self, body: bytes, limit: timedelta) -> None:
        self.is_late = False
        self._body = body
        self._limit = limit
        self._task = asyncio.current_task()
        self._end: asyncio.TimerHandle | None = None

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the request in parts; aiohttp asks for each part once it has sent the previous one."""
        loop = asyncio.get_running_loop()
        self._end = loop.call_later(self._limit.total_seconds(), self._give_up)
        for start in range(0, len(self._body), _BUFFERED):
            yield self._body[start : start + _BUFFERED]
        self.end()

    def end(self) -> None:
        """Stop the time limit: the task is not cancelled any more."""
        if self._end is not None:
            self._end.cancel()

    def uncancel(self) -> None:
        """Revoke the cancellation of the task; before Python 3.11, a task needs no call for that."""
        if self._task is not None and sys.version_info >= (3, 11):
            self._task.uncancel()

    def _give_up(self) -> None:
        self.is_late = True
        if self._task is not None:
            self._task.cancel()


class Answer(NamedTuple):
    """The HTTP answer of a server."""

    status: int
    content: bytes
    """The body; a part of its first bytes if the body is larger than the endpoint's limit."""
    is_whole: bool
    """Whether the body is within the endpoint's limit."""
    content_type: str
    """The content type without parameters, in lower case; empty if the answer names none."""
    retry_after: str | None
    """The header ``Retry-After``; None if the answer lacks it."""


class _CheckedConnector(aiohttp.BaseConnector):
    """Closes an idle connection that got data, rather than use it: the data would be the next request's answer.

    RFC 9112, section 9.2, asks for that. aiohttp itself only checks that the connection is open.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._used: WeakSet[object] = WeakSet()
        """The connections that have had a request."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,
    ) -> Connection:
        """Return an idle connection without data, or a new one; in place of idle ones if the request needs it."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            has_data = protocol is not None and protocol.should_close
            if protocol in self._used and (has_data or _HAS_NEW_CONNECTION.get()):
                connection.close()
                continue
            self._used.add(protocol)
            return connection


class _TcpConnector(_CheckedConnector, aiohttp.TCPConnector):
    """A connector for TCP."""


class _UnixConnector(_CheckedConnector, aiohttp.UnixConnector):
    """A connector for Unix domain sockets."""


class HttpClient:
    """The connections of this process to an endpoint; they are opened when they are needed.

    Raises:
        ConfigurationError: if the endpoint's certificates cannot be used.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._tls = tls_context(endpoint.tls) if is_https(endpoint.url_template) else None
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._at_exit: Callable[[], None] = _nothing

    async def post(
        self, url: str, body: bytes, seconds: float, *, is_alone: bool = False
    ) -> Answer:
        """Send an HTTP request and wait for its answer.

        Args:
            url: the URL, which may name a socket (``http+unix:///path/to.sock/path``).
            body: the content of the request.
            seconds: how many seconds request and answer may take together.
            is_alone: whether the server is called for nothing else. Then the request gets a new connection: a server
                may end a used one at any time, and the request would seem to be the reason.

        Raises:
            NoConnectionError: if no connection to the server can be opened; a WrongUrlError if that cannot change.
            NoReplyError: if the server does not answer.
        """
        times = self._endpoint.timeouts
        timeout = aiohttp.ClientTimeout(
            total=seconds,
            sock_connect=times.connect.total_seconds(),
            sock_read=times.read.total_seconds() if times.read else None,
        )
        sending = _Sending(body, times.write) if times.write and len(body) > _BUFFERED else None
        _HAS_NEW_CONNECTION.set(is_alone)
        try:
            session = self._opened(url)
            async with session.post(
                _http_url(url),
                data=body if sending is None else sending.parts(),
                headers=None if sending is None else {"Content-Length": str(len(body))},
                timeout=timeout,
                allow_redirects=False,
            ) as reply:
                return await self._answer(reply)
        except aiohttp.ClientConnectorError as error:
            raise NoConnectionError(f"cannot be reached: {_reason(error)}") from error
        except aiohttp.ConnectionTimeoutError as error:
            raise NoConnectionError(f"was not reached within {times.connect}") from error
        except aiohttp.SocketTimeoutError as error:
            raise NoReplyError(f"has sent nothing for {times.read}") from error
        except asyncio.TimeoutError as error:
            raise NoReplyError("has not answered in time") from error
        except asyncio.CancelledError:
            if sending is None or not sending.is_late:
                raise
            sending.uncancel()
            raise NoReplyError(f"has not read the whole request within {times.write}") from None
        except ValueError as error:  # the URL has a host that cannot exist
            text = without_secrets(error, url)
            raise WrongUrlError(f"cannot be reached: its URL is wrong: {text}") from error
        except aiohttp.ClientError as error:
            text = without_secrets(error, url) or type(error).__name__
            raise NoReplyError(f"has broken the connection off: {text}", is_broken=True) from error
        finally:
            if sending is not None:
                sending.end()

    def permit(self, *, is_alone: bool = False) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits for a permit; there are as many as there may be connections.

        Without it, requests would wait for a connection inside of aiohttp, where the time limit of a
        waiting request runs already, and where a thousand waiting requests need 20 percent more CPU time.
        A probe takes no permit: while it waited for one, the server would seem to be down.

        Args:
            is_alone: whether the request needs no permit, since its micro-batch waits for it, and the server is called
                for no other address.
        """
        if is_alone:
            return nullcontext()
        loop = asyncio.get_running_loop()
        if self._free is None or self._free[0] is not loop:
            self._free = loop, asyncio.Semaphore(self._endpoint.pool_size)
        return self._free[1]

    async def close(self) -> None:
        """Close the connections to the endpoint."""
        if self._session is not None:
            await self._session.close()
            atexit.unregister(self._at_exit)
            self._session = None

    def _opened(self, url: str) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=self._connector(url),
                headers={"Content-Type": BYTES, "Accept": BYTES, "User-Agent": "statefun"},
                skip_auto_headers={"Accept-Encoding"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
            self._at_exit = partial(_close_at_exit, self._session, loop)
            atexit.register(self._at_exit)
        return self._session

    def _connector(self, url: str) -> aiohttp.BaseConnector:
        ttl = self._endpoint.pool_ttl.total_seconds()
        file = socket_file(url)
        if file is not None:
            return _UnixConnector(file, limit=_BY_PERMITS, keepalive_timeout=ttl)
        return _TcpConnector(
            limit=_BY_PERMITS, keepalive_timeout=ttl, ssl=True if self._tls is None else self._tls
        )

    async def _answer(self, reply: aiohttp.ClientResponse) -> Answer:
        content, is_whole = await self._content(reply)
        if not content and reply.status == HTTPStatus.OK and not _has_end(reply):
            raise NoReplyError(_NO_CONTENT, is_broken=True)
        declared = reply.headers.get("Content-Type", "")  # aiohttp has a default for none
        kind = declared.partition(";")[0].strip().lower()
        return Answer(reply.status, content, is_whole, kind, reply.headers.get("Retry-After"))

    async def _content(self, reply: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        limit = self._endpoint.max_bytes
        if (reply.content_length or 0) > limit:
            with suppress(asyncio.TimeoutError):  # its size is known, whatever comes
                return await reply.content.read(_FIRST_BYTES), False
            return b"", False
        if reply.content_length is not None:
            return await reply.read(), True
        parts, size = [], 0
        async for part in reply.content.iter_any():
            size += len(part)
            parts.append(part)
            if size > limit:
                return b"".join(parts)[:_FIRST_BYTES], False
        return b"".join(parts), True


def _has_end(reply: aiohttp.ClientResponse) -> bool:
    """Return whether an answer says where its content ends; else, the end of the connection is its end."""
    is_chunked = "chunked" in reply.headers.get("Transfer-Encoding", "").lower()
    return is_chunked or reply.content_length is not None


def _nothing() -> None:
    """Do nothing at exit, as the client has not opened a session that must be closed."""


def _close_at_exit(session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    """Close the session of a process that ends, as aiohttp would log a warning about an open session."""
    if not (session.closed or loop.is_closed() or loop.is_running()):
        loop.run_until_complete(session.close())


@lru_cache(maxsize=1000)
def _http_url(url: str) -> URL:
    file = socket_file(url)
    if file is None:
        return URL(url)
    scheme, _, rest = url.partition("+unix://")
    return URL(f"{scheme}://localhost{rest[len(file) :] or '/'}")


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return a TLS context that trusts the given authorities, and presents the given client certificate.

    Raises:
        ConfigurationError: if the authorities or the certificate cannot be used.
    """
    try:
        trusted = None if tls.trusted is None else tls.trusted.decode("ascii")
        context = ssl.create_default_context(cadata=trusted)
        if tls.certificate is not None and tls.key is not None:
            with tempfile.TemporaryDirectory() as folder:  # Python loads them from a file only
                file = Path(folder) / "client.pem"
                file.touch(mode=0o600)
                file.write_bytes(tls.certificate + b"\n" + tls.key)
                context.load_cert_chain(file, password=tls.password or _no_password)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the endpoint's certificates cannot be used: {error}") from error
    return context


def _no_password() -> str:
    raise ValueError("the private key has a password; give it as client_key_password")


def _reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    cause = error.os_error
    if isinstance(cause, ssl.SSLError | socket.gaierror) or not cause.errno:
        return str(cause.strerror or cause) or type(cause).__name__
    return os.strerror(cause.errno)
