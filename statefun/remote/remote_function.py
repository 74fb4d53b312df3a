# SPDX-License-Identifier: Apache-2.0
"""The functions behind an endpoint, as one transport of the invocation batch.

All messages for an address go in one request, up to the endpoint's limits; the next request has the
state that the reply to the one before has left. When a request fails, its messages are sent again in
ever smaller parts, so that the failure of one is not the failure of all.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from statefun.module.model import Endpoint, without_login
from statefun.protocol.request_reply_pb2 import FromFunction
from statefun.remote.calling import Budget, Caller, CallFailedError
from statefun.remote.circuit import EndpointDownError
from statefun.remote.exchange import (
    RemoteValue,
    ReplyError,
    effects_of,
    missing_values,
    reply_of,
    request_of,
)
from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation, DelayedMessage, PrepareMessage
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import EndpointError, InvocationError, StatefunError
from statefun.sdk.invocation_batch import (
    FailedInvocation,
    Invocation,
    InvocationBatch,
    InvocationResult,
    Postponed,
)
from statefun.sdk.message import Message
from statefun.sdk.types import TypedValue

FUNCTION_NAME = "{function.name}"
_MOST_QUESTIONS = 3
"""How often a function may ask for values until it gets its messages."""
_ATTEMPTS_OF_PARTS = 3
_QUESTION_TIME = timedelta(seconds=5)
_OVERHEAD_BYTES = 1024
"""About how much larger than its values a request is, and a message in it by a twentieth."""


class RemoteFunctions:
    """The transport of an endpoint. It travels to the workers; each process has connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._known: defaultdict[str, dict[str, RemoteValue]] = defaultdict(dict)
        """The values that functions keep, by their typename."""
        self._caller: Caller | None = None
        self._connections: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def __reduce__(self) -> tuple[type[RemoteFunctions], tuple[Endpoint]]:
        return RemoteFunctions, (self.endpoint,)

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Run a function over a batch; see :class:`~statefun.sdk.invocation_batch.Transport`."""
        async with self._free_connection():
            return await _Run(self, batch, prepare).run()

    def _free_connection(self) -> asyncio.Semaphore:
        """Return what lets only so many calls begin as there may be connections.

        A call that waits for a connection has its request, its timers and its place among the tasks
        already: with a thousand of them each call took 1.2 times the CPU.
        """
        loop = asyncio.get_running_loop()
        if self._connections is None or self._connections[0] is not loop:
            self._connections = loop, asyncio.Semaphore(self.endpoint.pool_size)
        return self._connections[1]

    async def probe(self, target: Address) -> str | None:
        """Ask the endpoint whether it answers; return why not, or None."""
        problem = await self.caller().probe(self.url_of(target), request_of(target, {}, {}, ()))
        return None if problem is None else self._of_endpoint(target, problem)

    async def ask(self, target: Address) -> str | None:
        """Ask the endpoint for a function, without a message; return the problem, or None."""
        empty, url = request_of(target, {}, {}, ()), self.url_of(target)
        budget = Budget.of(_QUESTION_TIME, 1)
        try:
            await self.caller().call(url, empty, lambda: empty, budget, reply_of)
        except CallFailedError as error:
            return self._of_endpoint(target, str(error))
        except EndpointDownError:
            return await self.probe(target)
        return None

    def _of_endpoint(self, target: Address, problem: str) -> str:
        return (
            f"function {target.typename}: endpoint {without_login(self.url_of(target))} {problem}"
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._caller is not None:
            await self._caller.close()

    def url_of(self, target: Address) -> str:
        """Return the URL of a function."""
        return self.endpoint.url_template.replace(FUNCTION_NAME, target.name)

    def known(self, target: Address) -> dict[str, RemoteValue]:
        """Return the values that a function has told of."""
        return self._known[target.typename]

    def caller(self) -> Caller:
        """Return what calls the endpoint."""
        if self._caller is None:
            self._caller = Caller(self.endpoint)
        return self._caller


class _Run:
    """A batch, on its way through several requests."""

    def __init__(
        self, remote: RemoteFunctions, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> None:
        self._remote = remote
        self._endpoint = remote.endpoint
        self._batch = batch
        self._prepare = prepare
        self._state = dict(batch.state)
        self._mutations: dict[str, TypedValue | None] = {}
        self._messages: list[Message] = []
        self._delayed: list[DelayedMessage | Cancellation] = []
        self._records: list[EgressMessage] = []
        self._failures: list[FailedInvocation] = []
        self._handled = 0
        """How many of the messages are done with."""

    async def run(self) -> InvocationResult:
        postponed = None
        for part in self._parts():
            try:
                await self._send(part)
            except EndpointDownError as down:
                postponed = Postponed(self._handled, down.wait)
                break
        known = self._remote.known(self._batch.target).values()
        return InvocationResult(
            self._mutations,
            self._messages,
            self._delayed,
            self._records,
            self._failures,
            tuple(value.expiration for value in known if value.expiration is not None),
            postponed,
        )

    def _parts(self) -> Iterator[range]:
        """Divide the batch into requests."""
        start, size = 0, 0
        for index, invocation in enumerate(self._batch.invocations):
            added = len(invocation.argument.value or b"") * 21 // 20 + _OVERHEAD_BYTES
            full = size + added > self._endpoint.max_bytes
            if index > start and (full or index - start == self._endpoint.max_batch):
                yield range(start, index)
                start, size = index, 0
            size += added
        yield range(start, len(self._batch.invocations))

    async def _send(self, part: range) -> None:
        """Send a request; if it fails, find the messages that are the reason."""
        call = self._endpoint.timeouts.call
        try:
            await self._call(part, Budget.of(call))
        except (CallFailedError, StatefunError) as error:
            if len(part) == 1:
                self._fail(part, error)
            else:
                await self._send_halves(part, Budget.of(call, _ATTEMPTS_OF_PARTS), error)

    async def _send_halves(self, part: range, budget: Budget, error: Exception) -> None:
        if len(part) == 1 or budget.left <= 0:
            self._fail(part, error)
            return
        middle = part.start + len(part) // 2
        for half in (range(part.start, middle), range(middle, part.stop)):
            try:
                await self._call(half, budget)
            except (CallFailedError, StatefunError) as failed:
                await self._send_halves(half, budget, failed)

    async def _call(self, part: range, budget: Budget) -> None:
        """Send the messages of a part in one request, and take over the effects."""
        target, known = self._batch.target, self._remote.known(self._batch.target)
        invocations = self._batch.invocations[part.start : part.stop]
        trace = _common_trace(invocations)
        url, caller = self._remote.url_of(target), self._remote.caller()
        empty = partial(request_of, target, known, {}, ())
        for _ in range(_MOST_QUESTIONS):
            asked = set(known)
            body = request_of(target, known, self._state, invocations)
            if len(body) > self._endpoint.max_bytes:
                raise CallFailedError(
                    f"takes requests of {self._endpoint.max_bytes:,} bytes, and this one has "
                    f"{len(body):,}; raise payload_max_bytes"
                )
            read = partial(self._read, known, trace)
            reply = await caller.call(url, body, empty, budget, read)
            if isinstance(reply, InvocationResult):
                self._take(reply)
                self._handled = part.stop
                return
            known.update(reply)
            if asked >= reply.keys():
                break
        raise CallFailedError(f"asks for its values {', '.join(sorted(known))} again and again")

    def _read(
        self, known: Mapping[str, RemoteValue], trace: str | None, content: bytes
    ) -> InvocationResult | dict[str, RemoteValue]:
        """Read a reply: its effects, or the values that it asks for."""
        reply: FromFunction = reply_of(content)
        if reply.HasField("incomplete_invocation_context"):
            missing = missing_values(reply)
            if not missing:
                raise ReplyError("a question for no values")
            return missing
        return effects_of(reply, known, self._prepare, trace)

    def _take(self, effects: InvocationResult) -> None:
        self._mutations |= effects.state_mutations
        for name, value in effects.state_mutations.items():
            if value is None:
                self._state.pop(name, None)
            else:
                self._state[name] = value
        self._messages += effects.messages
        self._delayed += effects.delayed
        self._records += effects.egress_messages

    def _fail(self, part: range, error: Exception) -> None:
        target = self._batch.target
        failure: InvocationError
        if isinstance(error, InvocationError):
            failure, cause = error, type(error).__name__
        else:
            text = error.message if isinstance(error, StatefunError) else str(error)
            url = without_login(self._remote.url_of(target))
            place = f"function {target.typename} failed at address {target}"
            failure = EndpointError(f"{place}: endpoint {url} {text}")
            cause = EndpointError.__name__
        self._failures += [FailedInvocation(index, failure, cause, "") for index in part]
        self._handled = part.stop


def _common_trace(invocations: Sequence[Invocation]) -> str | None:
    """Return the trace that all messages of a request are part of, if they are of one."""
    traces: set[Any] = {invocation.trace for invocation in invocations}
    return traces.pop() if len(traces) == 1 else None
