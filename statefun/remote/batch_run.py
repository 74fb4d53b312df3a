# SPDX-License-Identifier: Apache-2.0
"""A batch on its way to a function elsewhere, through several requests.

All messages for an address go in one request, up to the endpoint's limits; the next request has the
state that the reply to the one before has left. When a request fails, its messages are sent again in
ever smaller parts, so that the failure of one is not the failure of all. What there is no time for
waits, as do messages to an endpoint that is down: the next micro-batch goes on where this one ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from statefun.protocol.request_reply_pb2 import FromFunction
from statefun.remote.attempts import Budget, CallFailedError, LaterError, OutageError
from statefun.remote.circuit import EndpointDownError
from statefun.remote.endpoint_client import EndpointClient
from statefun.remote.exchange import (
    RemoteValue,
    ReplyError,
    StaleReplyError,
    effects_of,
    missing_values,
    reply_of,
    request_of,
)
from statefun.sdk.context import Cancellation, DelayedMessage, PrepareMessage
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import EndpointError, InvocationError, StatefunError
from statefun.sdk.invocation_batch import (
    FailedInvocation,
    Invocation,
    InvocationBatch,
    InvocationResult,
    Postponed,
    Trouble,
)
from statefun.sdk.message import Message
from statefun.sdk.shown_uris import shown_uri, without_secrets
from statefun.sdk.storage import Expiration
from statefun.sdk.types import TypedValue

_MOST_QUESTIONS = 4
"""How often a function may ask for values until it gets its messages."""
_ATTEMPTS_OF_PARTS = 3
_MOST_ALONE = 3
"""How often an endpoint may go down with a message that is alone: once may be by chance."""
_FIRST_REST = timedelta(seconds=2)
"""How long a message waits that an endpoint went down with alone; twice as long the next time."""
_HOLD = timedelta(seconds=1)
"""How long attempts in vain may hold up the others of a micro-batch."""
_MESSAGE_BYTES = 1024
"""About how much larger than its value a message in a request is, beside a twentieth."""


class _OutOfTimeError(Exception):
    """The rest of a batch has to wait for the next micro-batch."""


class BatchRun:
    """A batch, on its way through several requests."""

    def __init__(
        self, client: EndpointClient, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> None:
        self._client = client
        self._endpoint = client.endpoint
        self._batch = batch
        self._prepare = prepare
        self._known = client.known(batch.target)
        self._state = dict(batch.state)
        self._mutations: dict[str, TypedValue | None] = {}
        self._messages: list[Message] = []
        self._delayed: list[DelayedMessage | Cancellation] = []
        self._records: list[EgressMessage] = []
        self._failures: list[FailedInvocation] = []
        self._expiring: tuple[Expiration, ...] = ()
        self._handled = 0
        """How many of the messages are done with."""
        self._outages, self._alone, attempts, spent, self._most = batch.trouble
        self._limit = self._endpoint.timeouts.call
        self._begun = time.monotonic()
        self._budget = self._new_budget(attempts, spent)

    async def run(self) -> InvocationResult:
        """Send the messages, and return the effects of the replies."""
        postponed = None
        try:
            while self._handled < len(self._batch.invocations):
                if self._handled and self._is_over(self._limit):
                    raise _OutOfTimeError
                await self._send(self._next_part())
            self._outages = 0
        except EndpointDownError as down:
            postponed = Postponed(self._handled, down.wait, is_down=True)
        except LaterError as later:
            postponed = Postponed(
                self._handled, later.wait, problem=f"endpoint {self._described(later)}"
            )
        except OutageError as outage:
            postponed = self._blamed(outage)
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
            self._trouble(),
        )

    def _trouble(self) -> Trouble:
        budget = self._budget
        outages = self._outages + bool(budget.outage)
        if budget.was_away or budget.left <= 0:  # then it begins anew
            return Trouble(outages, self._alone, most=self._most)
        spent = self._limit - timedelta(seconds=budget.left)
        return Trouble(outages, self._alone, budget.attempts, spent, self._most)

    def _blamed(self, outage: OutageError) -> Postponed | None:
        """Let the message wait that the endpoint went down with; if it did each time, it fails."""
        self._alone += 1
        self._budget.outage = ""
        rest = _FIRST_REST * 2 ** (self._alone - 1)
        if self._alone == _MOST_ALONE:
            text = (
                f"{outage}, as each of the {_MOST_ALONE} times when it was called for nothing else"
            )
            self._fail(range(self._handled, self._handled + 1), CallFailedError(text))
        if self._handled == len(self._batch.invocations):
            self._outages = 0
            return None
        return Postponed(self._handled, rest, problem=f"endpoint {self._described(outage)}")

    def _is_over(self, time_for_all: timedelta) -> bool:
        return time.monotonic() - self._begun >= time_for_all.total_seconds()

    def _next_part(self) -> range:
        """Return the messages of the next request."""
        most = 1 if self._batch.is_alone else self._most or self._endpoint.max_batch
        start, size = self._handled, 0
        for index in range(start, len(self._batch.invocations)):
            value = self._batch.invocations[index].argument.value
            size += len(value or b"") * 21 // 20 + _MESSAGE_BYTES
            if index > start and (size > self._endpoint.max_bytes or index - start == most):
                return range(start, index)
        return range(start, len(self._batch.invocations))

    def _new_budget(self, attempts: int = 0, spent: timedelta = timedelta(0)) -> Budget:
        """Return the limits of a call; ``attempts`` and ``spent`` are of earlier micro-batches.

        A call that goes on gets the time of an attempt, however little is left: what the endpoint
        has answered in earlier micro-batches is forgotten, and its reason would be lost.
        """
        hold = min(_HOLD, self._limit).total_seconds()
        return Budget(
            max((self._limit - spent).total_seconds(), hold),
            _ATTEMPTS_OF_PARTS if self._most else None,
            self._begun + hold,
            self._batch.is_alone,
            attempts,
        )

    async def _send(self, part: range) -> None:
        """Send a request; if it fails, send its messages in halves from then on."""
        try:
            await self._call(part)
        except (EndpointDownError, LaterError, OutageError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a reply causes is its message's failure
            if len(part) == 1:
                self._fail(part, error)
            else:
                self._most = len(part) // 2
            self._budget = self._new_budget()
            if self._is_over(_HOLD):
                raise _OutOfTimeError from None
        else:
            self._alone = 0
            self._outages = self._outages if self._batch.is_alone else 0
            if len(part) >= self._most:
                self._most = self._most * 2 if self._most * 2 < self._endpoint.max_batch else 0
            self._budget = self._new_budget()

    async def _call(self, part: range) -> None:
        """Send the messages of a part in one request, and take over the effects."""
        target, known = self._batch.target, self._known
        invocations = self._batch.invocations[part.start : part.stop]
        trace = _common_trace(invocations)
        client = self._client
        url, caller = client.url_of(target), client.caller()
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
                    url, body, empty, self._budget, read, partial(client.lacks, target)
                )
            except StaleReplyError as stale:
                problem = f"has answered with {stale}"
                known.values = {}
                continue
            client.has_replied(target)
            if isinstance(reply, InvocationResult):
                self._take(reply)
                found = [value.expiration for value in sent.values()]
                self._expiring = tuple(each for each in found if each is not None)
                self._handled = part.stop
                return
            if sent.keys() >= reply.keys():
                break
            client.learn(known, reply)
            self._budget = self._new_budget()  # what was in vain before the reply is over
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
        self._alone = 0
        failure: InvocationError
        if isinstance(error, InvocationError):
            failure, cause = error, type(error).__name__
        else:
            place = f"function {target.typename} failed at address {target}"
            failure = EndpointError(f"{place}: endpoint {self._described(error)}")
            failure.way_out = self._way_out()
            cause = EndpointError.__name__
        self._failures += [FailedInvocation(index, failure, cause, "") for index in part]
        self._handled = part.stop

    def _way_out(self) -> str:
        """Return how an application goes on without such messages, if nobody has decided that."""
        if self._endpoint.failure_policy is not None:
            return ""
        return (
            "; to go on without such messages, write 'failurePolicy: skip' into the spec of the "
            f"endpoint, {self._endpoint.location}"
        )

    def _described(self, error: Exception) -> str:
        uri = self._client.url_of(self._batch.target)
        url = shown_uri(uri)
        if isinstance(error, StatefunError):
            return f"{url}: {error.message}"
        if isinstance(error, CallFailedError | LaterError | OutageError):
            return f"{url} {error}"
        return f"{url}: {type(error).__name__}: {without_secrets(error, uri)}"


def _common_trace(invocations: Sequence[Invocation]) -> str | None:
    """Return the trace that all messages of a request are part of, if they are of one."""
    traces: set[Any] = {invocation.trace for invocation in invocations}
    return traces.pop() if len(traces) == 1 else None
