# SPDX-License-Identifier: Apache-2.0
"""The functions behind an endpoint, as one transport of the invocation batch.

All messages for an address go in one request, up to the endpoint's limits; the next request has the
state that the reply to the one before has left. When a request fails, its messages are sent again in
ever smaller parts, so that the failure of one is not the failure of all. What there is no time for
waits, as do messages to an endpoint that is down.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

import attrs

from statefun.module.model import FUNCTION_NAME, Endpoint
from statefun.module.urls import without_login
from statefun.protocol.request_reply_pb2 import FromFunction
from statefun.remote.calling import Budget, Caller, CallFailedError
from statefun.remote.circuit import EndpointDownError
from statefun.remote.exchange import (
    RemoteValue,
    ReplyError,
    StaleReplyError,
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
from statefun.sdk.storage import Expiration
from statefun.sdk.types import TypedValue

_MOST_QUESTIONS = 4
"""How often a function may ask for values until it gets its messages."""
_KNOWN_FOR = timedelta(minutes=5)
"""How long what a function has told of its values counts: its server may be replaced."""
_ATTEMPTS_OF_PARTS = 3
_MOST_OUTAGES = 5
"""How often an endpoint may go down with an address's messages before they are the reason."""
_QUESTION_TIME = timedelta(seconds=5)
_MESSAGE_BYTES = 1024
"""About how much larger than its value a message in a request is, beside a twentieth."""
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""A part of a host's name (RFC 1123)."""


@attrs.define
class _Known:
    """What is known of a function."""

    values: Mapping[str, RemoteValue] = attrs.Factory(dict)
    """The values that it keeps, by name."""
    until: float = 0
    """When to ask again, by ``time.monotonic``."""


class RemoteFunctions:
    """The transport of an endpoint. It travels to the workers; each process has connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.outages: dict[Address, int] = {}
        """How often the endpoint went down with messages of an address, in a row."""
        self.parts: dict[Address, int] = {}
        """How many messages an address gets at once that had no time for more."""
        self._known: dict[str, _Known] = {}
        """By typename."""
        self._turn: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._caller: Caller | None = None

    def __reduce__(self) -> tuple[type[RemoteFunctions], tuple[Endpoint]]:
        return RemoteFunctions, (self.endpoint,)

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Run a function over a batch; see :class:`~statefun.sdk.invocation_batch.Transport`."""
        run = _Run(self, batch, prepare)
        if not run.is_suspect:
            return await run.run()
        async with self._alone():
            return await run.run()

    def _alone(self) -> asyncio.Lock:
        """Return what lets one suspect at a time pass: only so it is known which one it was."""
        loop = asyncio.get_running_loop()
        if self._turn is None or self._turn[0] is not loop:
            self._turn = loop, asyncio.Lock()
        return self._turn[1]

    async def probe(self, target: Address) -> str | None:
        """Ask the endpoint whether it answers; return why not, or None."""
        problem = await self.caller().probe(self.url_of(target), request_of(target, {}, {}, ()))
        return None if problem is None else self._of_endpoint(target, problem)

    async def ask(self, target: Address) -> str | None:
        """Ask the endpoint for a function, without a message; return the problem, or None."""
        empty = request_of(target, {}, {}, ())
        budget = Budget.of(_QUESTION_TIME, 1)
        try:
            await self.caller().call(self.url_of(target), empty, lambda: empty, budget, reply_of)
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
        """Return the URL of a function.

        Raises:
            EndpointError: if its name would lead elsewhere.
        """
        template, name = self.endpoint.url_template, target.name
        if FUNCTION_NAME not in template:
            return template
        if self.endpoint.has_host_of_function:
            is_right = _LABEL.fullmatch(name) is not None
        else:
            is_right = name not in {".", ".."}
        if not is_right:
            raise EndpointError(f"{target.typename} has no place in {without_login(template)}")
        return template.replace(FUNCTION_NAME, quote(name, safe=""))

    def known(self, target: Address) -> _Known:
        """Return what is known of a function."""
        known = self._known.get(target.typename)
        if known is None:
            known = self._known[target.typename] = _Known()
        if known.values and time.monotonic() >= known.until:
            known.values = {}
        return known

    def learn(self, known: _Known, values: Mapping[str, RemoteValue]) -> None:
        """Take note of values that a function keeps."""
        if not known.values:
            known.until = time.monotonic() + _KNOWN_FOR.total_seconds()
        known.values = {**known.values, **values}

    def caller(self) -> Caller:
        """Return what calls the endpoint."""
        if self._caller is None:
            self._caller = Caller(self.endpoint)
        return self._caller


class _OutOfTimeError(Exception):
    """The rest of a batch has to wait for the next micro-batch."""


class _Run:
    """A batch, on its way through several requests."""

    def __init__(
        self, remote: RemoteFunctions, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> None:
        self._remote = remote
        self._endpoint = remote.endpoint
        self._batch = batch
        self._prepare = prepare
        self._known = remote.known(batch.target)
        self._state = dict(batch.state)
        self._mutations: dict[str, TypedValue | None] = {}
        self._messages: list[Message] = []
        self._delayed: list[DelayedMessage | Cancellation] = []
        self._records: list[EgressMessage] = []
        self._failures: list[FailedInvocation] = []
        self._expiring: tuple[Expiration, ...] = ()
        self._handled = 0
        """How many of the messages are done with."""
        self.is_suspect = remote.outages.get(batch.target, 0) >= _MOST_OUTAGES

    async def run(self) -> InvocationResult:
        postponed, target, outages = None, self._batch.target, self._remote.outages
        begun, call = time.monotonic(), self._endpoint.timeouts.call.total_seconds()
        try:
            for part in self._parts():
                if part.start and time.monotonic() - begun >= call:
                    raise _OutOfTimeError
                await self._send(part)
            outages.pop(target, None)
        except EndpointDownError as down:
            if down.was_sent:
                outages[target] = outages.get(target, 0) + 1
            postponed = Postponed(self._handled, down.wait)
        except _OutOfTimeError:
            postponed = Postponed(self._handled, timedelta(0))
        return InvocationResult(
            self._mutations,
            self._messages,
            self._delayed,
            self._records,
            self._failures,
            self._expiring,
            postponed,
        )

    def _parts(self) -> Iterator[range]:
        """Divide the batch into requests."""
        most = self._remote.parts.get(self._batch.target, self._endpoint.max_batch)
        if self.is_suspect:
            most = 1
        start, size = 0, 0
        for index, invocation in enumerate(self._batch.invocations):
            added = len(invocation.argument.value or b"") * 21 // 20 + _MESSAGE_BYTES
            full = size + added > self._endpoint.max_bytes
            if index > start and (full or index - start == most):
                yield range(start, index)
                start, size = index, 0
            size += added
        yield range(start, len(self._batch.invocations))

    async def _send(self, part: range) -> None:
        """Send a request; if it fails, find the messages that are the reason."""
        call = self._endpoint.timeouts.call
        try:
            await self._call(part, Budget.of(call))
        except (EndpointDownError, _OutOfTimeError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a reply causes is its message's failure
            if len(part) == 1:
                self._fail(part, error)
            else:
                await self._send_halves(part, Budget.of(call, _ATTEMPTS_OF_PARTS), error)
        else:
            self._grow(len(part))

    async def _send_halves(self, part: range, budget: Budget, error: Exception) -> None:
        """Send a part in halves, and each that fails again in halves.

        A message fails if the endpoint has answered to it alone; what is left when the time is over
        waits, and begins the next micro-batch in smaller parts.
        """
        if isinstance(error, CallFailedError) and not error.is_final:
            self._remote.parts[self._batch.target] = max(1, len(part) // 2)
        middle = part.start + len(part) // 2
        for half in (range(part.start, middle), range(middle, part.stop)):
            if budget.left <= 0:
                raise _OutOfTimeError
            try:
                await self._call(half, budget)
            except (EndpointDownError, _OutOfTimeError):
                raise
            except Exception as failed:  # noqa: BLE001 - as above
                if len(half) > 1:
                    await self._send_halves(half, budget, failed)
                elif isinstance(failed, CallFailedError) and not failed.is_final:
                    self._remote.parts[self._batch.target] = 1
                    raise _OutOfTimeError from None
                else:
                    self._fail(half, failed)

    def _grow(self, handled: int) -> None:
        """Let an address get more messages at once, after it has handled all that it got."""
        parts, target = self._remote.parts, self._batch.target
        most = parts.get(target)
        if most is not None and handled >= most:
            if most * 2 < self._endpoint.max_batch:
                parts[target] = most * 2
            else:
                del parts[target]

    async def _call(self, part: range, budget: Budget) -> None:
        """Send the messages of a part in one request, and take over the effects."""
        target, known = self._batch.target, self._known
        invocations = self._batch.invocations[part.start : part.stop]
        trace = _common_trace(invocations)
        url, caller = self._remote.url_of(target), self._remote.caller()
        empty = partial(request_of, target, {}, {}, ())
        problem = ""
        for _ in range(_MOST_QUESTIONS):
            sent = known.values
            body = request_of(target, sent, self._state, invocations)
            if len(body) > self._endpoint.max_bytes:
                raise CallFailedError(
                    f"takes requests of {self._endpoint.max_bytes:,} bytes, and this one has "
                    f"{len(body):,}; raise payload_max_bytes"
                )
            read = partial(self._read, sent, trace)
            try:
                reply = await caller.call(
                    url, body, empty, budget, read, is_suspect=self.is_suspect
                )
            except StaleReplyError as stale:
                problem = f"has answered with {stale}"
                known.values = {}
                continue
            if isinstance(reply, InvocationResult):
                self._take(reply)
                found = [value.expiration for value in sent.values()]
                self._expiring = tuple(each for each in found if each is not None)
                self._handled = part.stop
                return
            if sent.keys() >= reply.keys():
                break
            self._remote.learn(known, reply)
        names = ", ".join(sorted(known.values))
        raise CallFailedError(problem or f"asks for its values {names} again and again")

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
        if self.is_suspect:  # this is the one
            self.is_suspect = False
            self._remote.outages.pop(target, None)
        failure: InvocationError
        if isinstance(error, InvocationError):
            failure, cause = error, type(error).__name__
        else:
            place = f"function {target.typename} failed at address {target}"
            failure = EndpointError(f"{place}: endpoint {self._described(error)}")
            cause = EndpointError.__name__
        self._failures += [FailedInvocation(index, failure, cause, "") for index in part]
        self._handled = part.stop

    def _described(self, error: Exception) -> str:
        url = without_login(self._remote.url_of(self._batch.target))
        if isinstance(error, StatefunError):
            return f"{url}: {error.message}"
        if isinstance(error, CallFailedError):
            return f"{url} {error}"
        return f"{url}: {type(error).__name__}: {error}"


def _common_trace(invocations: Sequence[Invocation]) -> str | None:
    """Return the trace that all messages of a request are part of, if they are of one."""
    traces: set[Any] = {invocation.trace for invocation in invocations}
    return traces.pop() if len(traces) == 1 else None
