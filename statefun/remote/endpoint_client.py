# SPDX-License-Identifier: Apache-2.0
"""The client of one endpoint in a process: its URLs, its connections, and facts about functions."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote

import attrs

from statefun.module.model import FUNCTION_NAME, Endpoint
from statefun.module.urls import socket_file
from statefun.remote.attempts import Budget, CallFailedError, LaterError
from statefun.remote.calling import Caller
from statefun.remote.circuit import EndpointDownError
from statefun.remote.exchange import RemoteValue, reply_of, request_of
from statefun.sdk.address import Address
from statefun.sdk.errors import EndpointError
from statefun.sdk.invocation_batch import CircuitReport
from statefun.sdk.shown_uris import shown_uri

_FACTS_COUNT_FOR = timedelta(minutes=5)
"""How long facts about the values of a function count: its server may be replaced."""
_QUESTION_TIME = timedelta(seconds=5)
"""The time limit of a request without messages."""
_NOBODY = "statefun-nobody"
"""The name of a function that no server has."""
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""A part of a host's name (RFC 1123)."""


@attrs.define
class FunctionFacts:
    """Facts about a function that its replies have shown."""

    values: Mapping[str, RemoteValue] = attrs.Factory(dict)
    """The values that the function keeps, by name."""
    has_replied: bool = False
    """Whether the function has ever replied."""
    until: float = 0
    """Until when ``values`` counts, as ``time.monotonic`` counts."""


class EndpointClient:
    """The client of one endpoint: its connections, and facts about the functions."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._facts: dict[str, FunctionFacts] = {}
        """Facts about functions, by typename."""
        self._replied: dict[str, Address] = {}
        """The address that has replied last, by server."""
        self._caller: Caller | None = None

    async def probe(self, target: Address) -> str | None:
        """Ask whether the endpoint can be reached; return why not, or None."""
        problem = await self.caller().probe(self.url_of(target), request_of(target, {}, {}, ()))
        return None if problem is None else self._of_endpoint(target, problem)

    async def ask(self, target: Address) -> str | None:
        """Ask the endpoint for a function, without a message; return the problem, or None."""
        try:
            await self.request(target)
        except (CallFailedError, LaterError) as error:
            return self._of_endpoint(target, str(error))
        except EndpointDownError:
            return await self.probe(target)
        return None

    async def request(self, target: Address) -> None:
        """Ask the endpoint for a function, without a message.

        Raises:
            Exception: as :meth:`Caller.call` does.
        """
        empty = request_of(target, {}, {}, ())
        budget = Budget.of(_QUESTION_TIME, 1)
        await self.caller().call(self.url_of(target), empty, lambda: empty, budget, reply_of)

    async def false_success(self, target: Address) -> str | None:
        """Ask for a function that no server has; return the answer if it looks like a success."""
        nobody = Address(f"{target.namespace}/{_NOBODY}", target.id)
        empty = request_of(nobody, {}, {}, ())
        problem = await self.caller().false_success(self.url_of(target), empty)
        return None if problem is None else self._of_endpoint(target, problem)

    def _of_endpoint(self, target: Address, problem: str) -> str:
        return f"function {target.typename}: endpoint {shown_uri(self.url_of(target))} {problem}"

    async def close(self) -> None:
        """Close the connections."""
        if self._caller is not None:
            await self._caller.close()

    def url_of(self, target: Address) -> str:
        """Return the URL of a function.

        Raises:
            EndpointError: if the URL with the function's name would be that of something else.
        """
        template, name = self.endpoint.url_template, target.name
        if FUNCTION_NAME not in template:
            return template
        if self.endpoint.has_host_of_function:
            is_right = _LABEL.fullmatch(name) is not None
        else:
            is_right = name not in {".", ".."}
        if not is_right:
            raise EndpointError(
                f"the name of function {target.typename} cannot be a part of the URL {shown_uri(template)}"
            )
        return template.replace(FUNCTION_NAME, quote(name, safe=""))

    def server_of(self, target: Address) -> str:
        """Return the server of a function: its URL without login and path, or its socket."""
        url = shown_uri(self.url_of(target))
        return socket_file(url) or "/".join(url.split("/", 3)[:3])

    def facts_of(self, target: Address) -> FunctionFacts:
        """Return the facts about a function."""
        facts = self._facts.get(target.typename)
        if facts is None:
            facts = self._facts[target.typename] = FunctionFacts()
        if facts.values and time.monotonic() >= facts.until:
            facts.values = {}
        return facts

    def learn(self, facts: FunctionFacts, values: Mapping[str, RemoteValue]) -> None:
        """Add values that a function keeps to the facts about it."""
        if not facts.values:
            facts.until = time.monotonic() + _FACTS_COUNT_FOR.total_seconds()
        facts.values = {**facts.values, **values}

    def has_replied(self, target: Address) -> None:
        """Record that a function has replied."""
        self._replied[self.server_of(target)] = target
        self.facts_of(target).has_replied = True

    async def lacks(self, target: Address) -> bool:
        """Return whether the server replies for another function, and for this one never did.

        Both are asked without messages, so that no function is called: a server that has the
        function replies then, whatever the function would do with a message.
        """
        other = self._replied.get(self.server_of(target))
        if other is None or self.facts_of(target).has_replied:
            return False
        return not await self._replies(target) and await self._replies(other)

    async def _replies(self, target: Address) -> bool:
        empty = request_of(target, {}, {}, ())
        return await self.caller().replies(self.url_of(target), empty)

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return what calls of the endpoint have found out since this method was called last."""
        return [] if self._caller is None else self._caller.take_circuit_reports()

    def caller(self) -> Caller:
        """Return the caller, which is made when it is first needed."""
        if self._caller is None:
            self._caller = Caller(self.endpoint)
        return self._caller
