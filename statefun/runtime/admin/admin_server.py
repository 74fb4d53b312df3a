# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the admin API and of the live page, in the driver."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from http import HTTPStatus
from importlib import resources
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from statefun.runtime.admin.admin_changes import AdminChanges
from statefun.runtime.admin.admin_routes import api_routes
from statefun.runtime.admin.admin_tokens import VARIABLE, Tokens
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.admin.api_route import ApiAnswer, ApiRequest, ApiRoute
from statefun.runtime.admin.openapi import openapi
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.http_server import (
    ListenAddress,
    RefusedError,
    RequestHandler,
    Server,
    Server6,
    answering,
    path_parts,
)
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.stored.known_values import nearest
from statefun.sdk.errors import ConfigurationError, PlatformError
from statefun.sdk.foreign_requests import is_this_machine
from statefun.sdk.printable import printable

logger = logging.getLogger("statefun")
audit_log = logging.getLogger("statefun.audit")
"""Logs each change that a client makes."""
_STOP_SECONDS = 0.1
"""The time between two checks of the server whether it must stop."""
_NOBODY = "nobody"
"""The name of a client if no token is needed."""
_STRANGER = "a client without a valid token"
"""Names a client whose token is missing or wrong."""
PAGE = "page"
"""The first part of the paths of the page's files, and the name of their folder."""
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class AdminApi:
    """Finds the answers to the requests of the admin API.

    Args:
        definition: the application.
        control: the orders to it.
        figures: the counts of the application.
        tokens: the accepted tokens; clients need none if this is empty.
    """

    def __init__(
        self, definition: Definition, control: Control, figures: Figures, tokens: Tokens
    ) -> None:
        views = AdminViews(definition, control, figures)
        about = {
            "version": version("statefun"),
            "checkpoint": definition.settings.checkpoint.shown,
        }
        self._tokens = tokens
        self._routes = api_routes(views, AdminChanges(views, control), about)
        self._document = openapi(self._routes, about["version"])
        self.has_stopped = False
        """Whether the application has ended; a connection that is kept alive may still bring requests."""

    def answer(self, handler: RequestHandler, parts: Sequence[str]) -> ApiAnswer:
        """Return the answer to a request.

        Raises:
            RefusedError: if the request is refused.
        """
        if self.has_stopped:
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "the application has stopped: start it again"
            )
        if parts[0] == PAGE:
            return _page_file(handler.command, parts[1:])
        if not parts[0] and "text/html" in handler.headers.get("Accept", ""):
            raise RefusedError(HTTPStatus.FOUND, "the live page", Location=f"/{PAGE}/")
        if list(parts) == ["openapi.json"]:
            self._client(handler)
            return ApiAnswer(self._document)
        route, names = self._route(handler.command, parts)
        client, status = _STRANGER, HTTPStatus.INTERNAL_SERVER_ERROR
        try:
            client = _NOBODY if route.is_open else self._client(handler)
            body = handler.body() if route.method in {"PUT", "POST"} and _has_body(handler) else b""
            query = route.parsed_query(urlsplit(handler.path).query)
            answer = route.serve(
                ApiRequest(names, query, handler.headers.get("Content-Type"), body)
            )
            status = answer.status
        except RefusedError as refused:
            status = refused.status
            raise
        except OSError as error:  # of the checkpoint
            raise PlatformError(f"the checkpoint cannot be used: {error}") from error
        finally:
            _audit(handler, route, client, status)
        return answer

    def _client(self, handler: RequestHandler) -> str:
        """Return the name of the client that has sent a request.

        Raises:
            RefusedError: if the client has no token, and needs one.
        """
        if not self._tokens:
            return _NOBODY
        client = self._tokens.client(handler.headers.get("Authorization"))
        if client is None:
            text = HTTPStatus.UNAUTHORIZED.phrase
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED, text, **{"WWW-Authenticate": 'Bearer realm="statefun"'}
            )
        return client

    def _route(self, method: str, parts: Sequence[str]) -> tuple[ApiRoute, Any]:
        method = "GET" if method == "HEAD" else method
        found = [(each, names) for each in self._routes if (names := each.match(parts)) is not None]
        for route, names in found:
            if route.method == method:
                return route, names
        if found:
            allowed = ", ".join(sorted({route.method for route, _ in found}))
            text = f"{found[0][0].path} takes {allowed}"
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, text, Allow=allowed)
        path = f"/{'/'.join(parts)}"
        paths = sorted({f"{each.method} {each.path}" for each in self._routes})
        hint = nearest(f"{method} {path}", [*paths, "GET /openapi.json"], "such as")
        raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no {method} {path}{hint}")


@contextmanager
def serving_admin(definition: Definition, control: Control, figures: Figures) -> Iterator[None]:
    """Serve the admin API of an application during the block, if its settings say so.

    Raises:
        ConfigurationError: if other machines could use the API without a token.
        PlatformError: if the port cannot be used.
    """
    settings = definition.settings
    if settings.admin is None:
        yield
        return
    tokens = Tokens.of(settings.admin_tokens, os.environ)
    address = settings.admin
    if not (tokens or is_this_machine(address.host)):
        raise ConfigurationError(
            f"the admin API at {address.host} can be reached from other machines, so it needs a token: set "
            f"spark.statefun.admin.tokens to a file with tokens, or the environment variable {VARIABLE} to a token"
        )
    api = AdminApi(definition, control, figures, tokens)
    server = _bound(address, _handler(api, address.host))
    thread = threading.Thread(
        target=server.serve_forever, args=(_STOP_SECONDS,), name="statefun-admin", daemon=True
    )
    thread.start()
    url = ListenAddress(address.host, server.server_port).url
    logger.info("the admin API is ready: %s, with the live page %s/%s/", url, url, PAGE)
    try:
        yield
    finally:
        api.has_stopped = True
        server.shutdown()
        thread.join()
        server.server_close()


def _bound(address: ListenAddress, handler: type[RequestHandler]) -> Server:
    kind = Server6 if ":" in address.host else Server
    try:
        server = kind((address.host, address.port), handler)
    except OSError as error:
        raise PlatformError(
            f"the admin API cannot listen at {address.host}, port {address.port}: {error.strerror}; give "
            "spark.statefun.admin another port"
        ) from error
    server.service = "the admin API"
    return server


def _handler(api: AdminApi, host: str) -> type[RequestHandler]:
    class Served(RequestHandler):
        is_for_this_machine = is_this_machine(host)
        service = "the admin API"
        admission = "; if they may use it, set spark.statefun.admin to 0.0.0.0:PORT, and a token"

        def refuse_with(self, status: HTTPStatus, text: str, headers: Any = None) -> None:
            content = {"error_code": int(status), "message": text}
            self._send(ApiAnswer(content, status), headers or {})

        def _send(self, answer: ApiAnswer, headers: Any) -> None:
            content = answer.content
            if answer.type == "application/json":
                content = json.dumps(content, ensure_ascii=False)
            named = {"Content-Type": answer.type, **_HEADERS, **headers}
            self.answer(answer.status, content.encode("utf-8", "replace"), named)

        @answering
        def serve(self) -> None:
            parts = path_parts(self.path)
            self._send(api.answer(self, parts), {})

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = do_OPTIONS = serve  # noqa: N815 - the server's

    return Served


def _has_body(handler: RequestHandler) -> bool:
    return (
        handler.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in handler.headers
    )


def _page_file(method: str, parts: Sequence[str]) -> ApiAnswer:
    """Return a file of the page, which has no secrets, so that no token is needed.

    Raises:
        RefusedError: if there is no such file.
    """
    name = "/".join(parts) or "index.html"
    files = {each.name: each for each in resources.files(__package__).joinpath(PAGE).iterdir()}
    type_ = _TYPES.get(name.rpartition(".")[2])
    if method not in {"GET", "HEAD"} or name not in files or type_ is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no {method} /{PAGE}/{name}")
    return ApiAnswer(files[name].read_text("utf-8"), type=type_)


def _audit(handler: RequestHandler, route: ApiRoute, client: str, status: HTTPStatus) -> None:
    """Log a request that has changed the application, or has tried to: who, when and what."""
    if handler.command in {"GET", "HEAD"}:
        return
    target = urlsplit(handler.path)
    audit_log.setLevel(logging.INFO)  # also for an application that is quiet
    audit_log.info(
        "%s: %s at %s: %s %s: %d",
        datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        client,
        handler.client_address[0],
        handler.command,
        printable(target.path + route.shown_query(target.query)),
        status,
    )
