# SPDX-License-Identifier: Apache-2.0
"""The requests of the admin API about traces: what ``statefun trace`` finds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus

from statefun.runtime.admin.api_route import ApiAnswer, ApiRequest, ApiRoute
from statefun.runtime.definition import Definition
from statefun.runtime.http_server import RefusedError
from statefun.runtime.letters.letter_filter import past_moment
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.trace_search import FoundTrace, TraceSearch, trace_json
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError, ConfigurationError, DefinitionError

_RECORD_PATH = "/traces/records/{topic}/{partition}/{offset}"
_ADDRESS_PATH = "/traces/addresses/{namespace}/{name}/{id}"


def trace_routes(definition: Definition) -> list[ApiRoute]:
    """Return the kinds of requests about the traces of an application, with the functions that answer them."""
    traces = _Traces(definition)
    return [
        ApiRoute(
            *("GET", _RECORD_PATH, "trace_record", "what has caused a record", "Trace"),
            traces.of_record,
            statuses=[404],
        ),
        ApiRoute(
            *("GET", _ADDRESS_PATH, "trace_address", "what has called an address", "Trace"),
            traces.of_address,
            query=["until"],
            statuses=[400, 404],
        ),
    ]


class _Traces:
    """The traces of an application."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._reading = threading.Lock()
        """Is held during a search: it takes memory and a core."""

    def of_record(self, request: ApiRequest) -> ApiAnswer:
        """Return the trace of a record."""
        place = "/".join(request.names[name] for name in ("topic", "partition", "offset"))
        return self._answer(lambda search, _: search.of_record(place))

    def of_address(self, request: ApiRequest) -> ApiAnswer:
        """Return the trace of the newest invocation of an address."""
        given, until = request.query.get("until"), None
        if given is not None:
            try:
                until = past_moment(given)
            except ValueError as error:
                raise RefusedError(HTTPStatus.BAD_REQUEST, f"until {error}") from None
        return self._answer(
            lambda search, known: search.of_address(
                Address(known.stored_name(request.id), request.names["id"]), until
            )
        )

    def _answer(self, find: Callable[[TraceSearch, KnownValues], FoundTrace]) -> ApiAnswer:
        definition = self._definition
        checkpoint = definition.settings.checkpoint
        try:
            with self._reading:
                known = KnownValues.of(checkpoint, definition.functions)
                found = find(TraceSearch(checkpoint, known, lambda: definition.module), known)
        except (CheckpointError, ConfigurationError, DefinitionError) as error:
            raise RefusedError(HTTPStatus.NOT_FOUND, error.message) from error
        return ApiAnswer(trace_json(found))
