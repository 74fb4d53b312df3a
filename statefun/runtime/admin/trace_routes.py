# SPDX-License-Identifier: Apache-2.0
"""The requests of the admin API about traces: what ``statefun trace`` finds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timezone
from http import HTTPStatus

from statefun.runtime.admin.api_route import ApiAnswer, ApiRequest, ApiRoute
from statefun.runtime.definition import Definition
from statefun.runtime.http_server import RefusedError
from statefun.runtime.letters.letter_filter import parse_moment
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.trace_search import RECORD_PLACE, FoundTrace, TraceSearch, trace_json
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError, ConfigurationError, DefinitionError

_RECORD_PATH = "/traces/records/{topic}/{partition}/{offset}"
_ADDRESS_PATH = "/traces/addresses/{namespace}/{name}/{id}"


def trace_routes(definition: Definition) -> list[ApiRoute]:
    """Return the requests about the traces of an application."""
    traces = _Traces(definition)
    return [
        ApiRoute(
            *("GET", _RECORD_PATH, "trace_record", "what has caused a record", "Trace"),
            traces.of_record,
            statuses=[400, 404],
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
        self._search = TraceSearch(definition.settings.checkpoint, lambda: definition.module)
        self._reading = threading.Lock()
        """Is held during a search: it takes memory and a core."""

    def of_record(self, request: ApiRequest) -> ApiAnswer:
        """Return the trace of a record."""
        place = "/".join(request.names[name] for name in ("topic", "partition", "offset"))
        if RECORD_PLACE.fullmatch(place) is None:
            text = f"a record must be a topic, a partition and an offset, not {place!r}"
            raise RefusedError(HTTPStatus.BAD_REQUEST, text)
        return self._answer(lambda: self._search.of_record(place))

    def of_address(self, request: ApiRequest) -> ApiAnswer:
        """Return the trace of the newest invocation of an address."""
        given, until = request.query.get("until"), None
        if given is not None:
            try:
                until = parse_moment(given, datetime.now(timezone.utc))
            except ValueError as error:
                raise RefusedError(HTTPStatus.BAD_REQUEST, f"until {error}") from None

        def search() -> FoundTrace:
            settings, functions = self._definition.settings, self._definition.functions
            name = KnownValues.of(settings.checkpoint, functions).stored_name(request.id)
            return self._search.of_address(Address(name, request.names["id"]), until)

        return self._answer(search)

    def _answer(self, search: Callable[[], FoundTrace]) -> ApiAnswer:
        try:
            with self._reading:
                trace, asked = search()
        except (CheckpointError, ConfigurationError, DefinitionError) as error:
            raise RefusedError(HTTPStatus.NOT_FOUND, error.message) from error
        content = {
            "asked": sorted(span.hex() for span in asked),
            "left_out": trace.left_out,
            "is_cut": trace.is_cut,
            "invocations": trace_json(trace),
        }
        return ApiAnswer(content)
