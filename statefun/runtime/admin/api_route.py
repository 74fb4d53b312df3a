# SPDX-License-Identifier: Apache-2.0
"""The parts of the admin API: requests, answers, and the routes that lead from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import attrs

from statefun.runtime.http_server import RefusedError
from statefun.runtime.stored.known_values import nearest


@attrs.frozen
class ApiRequest:
    """A request whose path fits a route."""

    names: Mapping[str, str]
    """The variable parts of the path, by their names in the route."""
    query: Mapping[str, str] = attrs.field(factory=dict)
    content_type: str | None = None
    body: bytes = b""

    @property
    def id(self) -> str:
        """The typename in the path."""
        return f"{self.names['namespace']}/{self.names['name']}"

    def limit(self, default: int, most: int = 999_999) -> int:
        """Return how many items the answer may have: ``limit`` in the URL's query string, or else ``default``.

        Raises:
            RefusedError: if the limit is not a whole number from 1 to ``most``.
        """
        text = self.query.get("limit", str(default))
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
        if not (is_number and 0 < int(text) <= most):
            problem = f"limit must be a whole number from 1 to {most:,}, but is {text!r}"
            raise RefusedError(HTTPStatus.BAD_REQUEST, problem)
        return int(text)


@attrs.frozen
class ApiAnswer:
    """An answer: a value for JSON, or a text with its type."""

    content: Any = None
    status: HTTPStatus = HTTPStatus.OK
    type: str = "application/json"


@attrs.frozen
class ApiRoute:
    """A kind of request that the API answers: its method and path, and the function that answers it."""

    method: str
    path: str
    """The path; ``{name}`` stands for any text without a slash, in which ``%2F`` is one."""
    name: str
    """The name of the operation, for generated clients."""
    meaning: str
    schema: str
    """The name of the schema of the answer's content."""
    serve: Callable[[ApiRequest], ApiAnswer]
    is_open: bool = False
    """Whether a client needs no token."""
    query: Sequence[str] = ()
    """The names that the URL's query string may have."""
    is_lenient: bool = False
    """Whether other names and empty values are left out instead of refused.

    Monitoring systems send parameters of their own, or those of a template."""
    statuses: Sequence[int] = ()
    """Further statuses of answers, except those of all requests."""

    def match(self, parts: Sequence[str]) -> Mapping[str, str] | None:
        """Return the variable parts of a path that fits the route; None if the path does not fit."""
        own = self.path.removeprefix("/").split("/")
        if len(own) != len(parts):
            return None
        names = {}
        for expected, part in zip(own, parts, strict=True):
            if expected.startswith("{"):
                names[expected.strip("{}")] = part
            elif expected != part:
                return None
        return names

    def parsed_query(self, text: str) -> Mapping[str, str]:
        """Return the values in a URL's query string, by their names.

        Raises:
            RefusedError: if the route has no such name, or a name has no value, or occurs twice: to leave a condition
                out could replay more letters than the client has asked for. A lenient route refuses nothing.
        """
        if self.is_lenient:
            return {name: value for name, value in parse_qsl(text) if name in self.query}
        found: dict[str, str] = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            problem = None
            if name not in self.query:
                hint = nearest(name, self.query, "known") if self.query else ", as it takes none"
                problem = f"{self.path} takes no {name!r} in its query{hint}"
            elif not value:
                problem = f"{name} has no value: give it one, or leave it out"
            elif name in found:
                problem = f"{name} occurs twice: give it once"
            if problem is not None:
                raise RefusedError(HTTPStatus.BAD_REQUEST, problem)
            found[name] = value
        return found

    def shown_query(self, text: str) -> str:
        """Return a URL's query string for a log: a name that the route does not know may be a secret, as may its value.

        >>> route = ApiRoute("PUT", "/x", "x", "", "", lambda _: ApiAnswer(), query=["since"])
        >>> route.shown_query("since=12h&token=hunter2"), route.shown_query("")
        ('?since=12h&***', '')
        """
        parts = [
            part if part.partition("=")[0] in self.query else "***"
            for part in text.split("&")
            if part
        ]
        return f"?{'&'.join(parts)}" if parts else ""
