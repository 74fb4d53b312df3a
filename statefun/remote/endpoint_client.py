# SPDX-License-Identifier: Apache-2.0
"""The client of one endpoint in a process: URLs, connections, and the facts that replies state about functions."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from urllib.parse import quote

import attrs

from statefun.module.model import FUNCTION_NAME, Endpoint
from statefun.module.urls import socket_file
from statefun.remote.attempts import Budget, CallFailedError, LaterError
from statefun.remote.calling import Caller
from statefun.remote.circuit import EndpointDownError
from statefun.remote.exchange import RemoteValue, reply_of, request_of
from statefun.sdk.address import Address
from statefun.sdk.bounded_map import BoundedMap
from statefun.sdk.errors import EndpointError
from statefun.sdk.invocation_batch import CircuitReport
from statefun.sdk.shown_uris import shown_uri

_FACTS_COUNT_FOR = timedelta(minutes=5)
"""How long to use a function's list of values: a new version of the function may keep other values."""
_QUESTION_TIME = timedelta(seconds=5)
"""The time limit of a request without messages."""
_NOBODY = "statefun-nobody"
"""The name of a function that no server has."""
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""A label of a host's name, that is, a part between dots (RFC 1123)."""


@attrs.define
class FunctionFacts:
    """The facts that the replies of a function state about the function."""

    values: Mapping[str, RemoteValue] = attrs.Factory(dict)
    """The values that the function keeps, by name; empty if they are unknown."""
    has_replied: bool = False
    """Whether the function has ever replied to this process."""
    until: float = 0
    """Until when ``values`` is used, on the clock ``time.monotonic``."""


class EndpointClient:
    """The client of one endpoint: its connections, and facts about its functions."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._facts: BoundedMap[str, FunctionFacts] = BoundedMap()
        """The facts about the functions that were called last, by typename; others are asked for their facts again."""
        self._replied: BoundedMap[str, Address] = BoundedMap()
        """The address that has replied last on each server, for the servers that have replied last."""
        self._caller: Caller | None = None

    async def probe(self, target: Address) -> str | None:
        """Ask whether the endpoint can be reached; return why it cannot be, or None if it can."""
        problem = await self.caller().probe(self.url_of(target), request_of(target, {}, {}, ()))
        return None if problem is None else self._of_endpoint(target, problem)

    async def ask(self, target: Address) -> str | None:
        """Check by a request without messages that the endpoint has a function; return a problem, or None."""
        try:
            await self.request(target)
        except (CallFailedError, LaterError) as error:
            return self._of_endpoint(target, str(error))
        except EndpointDownError:
            return await self.probe(target)
        return None

    async def request(self, target: Address) -> None:
        """Send a request without messages to a function, and wait for its reply.

        Raises:
            Exception: as :meth:`Caller.call` does.
        """
        empty = request_of(target, {}, {}, ())
        budget = Budget.of(_QUESTION_TIME, 1)
        await self.caller().call(self.url_of(target), empty, lambda: empty, budget, reply_of)

    async def false_success(self, target: Address) -> str | None:
        """Ask for a function that no server has; return an answer with the status of a success, else None."""
        nobody = Address(f"{target.namespace}/{_NOBODY}", target.id)
        empty = request_of(nobody, {}, {}, ())
        problem = await self.caller().false_success(self.url_of(target), empty)
        return None if problem is None else self._of_endpoint(target, problem)

    def _of_endpoint(self, target: Address, problem: str) -> str:
        return f"function {target.typename}: endpoint {shown_uri(self.url_of(target))} {problem}"

    async def close(self) -> None:
        """Close the connections to the endpoint."""
        if self._caller is not None:
            await self._caller.close()

    def url_of(self, target: Address) -> str:
        """Return the URL of a function.

        Raises:
            EndpointError: if the function's name cannot be inserted into the URL without changing its host
                or the rest of its path.
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
        return _server_of(self.url_of(target))

    def facts_of(self, target: Address) -> FunctionFacts:
        """Return the facts about a function; the list of its values is dropped after some minutes."""
        facts = self._facts.get(target.typename)
        if facts is None:
            facts = self._facts[target.typename] = FunctionFacts()
        if facts.values and time.monotonic() >= facts.until:
            facts.values = {}
        return facts

    def learn(self, facts: FunctionFacts, values: Mapping[str, RemoteValue]) -> None:
        """Add values that a function keeps, according to its reply, to the facts about the function."""
        if not facts.values:
            facts.until = time.monotonic() + _FACTS_COUNT_FOR.total_seconds()
        facts.values = {**facts.values, **values}

    def has_replied(self, target: Address) -> None:
        """Record that a function has replied."""
        self._replied[self.server_of(target)] = target
        self.facts_of(target).has_replied = True

    async def lacks(self, target: Address, *, is_alone: bool) -> bool:
        """Return whether the server replies for another function, but has never replied for this one.

        Both functions are asked for by requests without messages, so no function is called: a server that
        has the function replies to such a request, whatever the function would do with a message.

        Args:
            target: an address of the function.
            is_alone: whether the server is called for no other address now; see ``HttpClient.permit``.
        """
        other = self._replied.get(self.server_of(target))
        if other is None or self.facts_of(target).has_replied:
            return False
        return not await self._replies(target, is_alone=is_alone) and await self._replies(
            other, is_alone=is_alone
        )

    async def _replies(self, target: Address, *, is_alone: bool) -> bool:
        empty = request_of(target, {}, {}, ())
        return await self.caller().replies(self.url_of(target), empty, is_alone=is_alone)

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return the new reports about servers of the endpoint that went down, or can be reached again."""
        return [] if self._caller is None else self._caller.take_circuit_reports()

    def caller(self) -> Caller:
        """Return the object that makes the calls; it is created when it is first needed."""
        if self._caller is None:
            self._caller = Caller(self.endpoint)
        return self._caller


@lru_cache(maxsize=1000)
def _server_of(url: str) -> str:
    """Return the server of a URL; the result is kept, as each call needs it several times."""
    shown = shown_uri(url)
    return socket_file(shown) or "/".join(shown.split("/", 3)[:3])
