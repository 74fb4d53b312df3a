# SPDX-License-Identifier: Apache-2.0
"""Sends an invocation batch to a function behind an endpoint, in one or several requests.

All messages for an address are sent in one request, up to the endpoint's limits; the next request has the
state after the reply to the request before it. When a request fails, its messages are sent again in
smaller and smaller parts, so that a message on which the function fails does not fail other messages.
Messages wait for the next micro-batch if there is no time left, or if the endpoint is down.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from statefun.protocol.request_reply_pb2 import FromFunction
from statefun.remote.attempts import Budget, CallFailedError, LaterError, OutageError
from statefun.remote.circuit import FEW_FAILURES, EndpointDownError
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
from statefun.sdk.context import PrepareMessage
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
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.shown_uris import shown_uri, without_secrets
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

_MOST_QUESTIONS = 100
"""How many replies in a row may ask for further values of the state before the call fails."""
_ATTEMPTS_OF_PARTS = 3
"""How often, at most, a part of the messages of a failed request is sent."""
_MOST_ALONE = 3
"""A message fails after this many outages while its address is called alone: one outage may be chance."""
_FIRST_REST = timedelta(seconds=2)
"""How long a message waits after the first outage while its address is called alone; later waits double."""
_HOLD = timedelta(seconds=1)
"""How long attempts without a reply may delay the other addresses of a micro-batch."""
_MESSAGE_BYTES = 1024
"""A message in a request is estimated to have 21/20 of the bytes of its value, plus this many bytes."""


class _OutOfTimeError(Exception):
    """The time of a call is over: the remaining messages of its batch wait for the next micro-batch."""


class BatchRun:
    """Sends one invocation batch in one or several requests, and collects the effects of the replies."""

    def __init__(
        self, client: EndpointClient, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> None:
        self._client = client
        self._endpoint = client.endpoint
        self._batch = batch
        self._prepare = prepare
        self._facts = client.facts_of(batch.target)
        self._state = dict(batch.state)
        self._mutations: dict[str, TypedValue | None] = {}
        self._messages: list[Message] = []
        self._delayed: list[DelayedMessage | Cancellation] = []
        self._records: list[EgressMessage] = []
        self._failures: list[FailedInvocation] = []
        self._expiring: tuple[Expiration, ...] = ()
        self._handled = 0
        """How many messages of the batch were handled or have failed so far."""
        self._outages, self._alone, attempts, spent, self._most = batch.trouble
        self._limit = self._endpoint.timeouts.call
        self._begun = time.monotonic()
        self._attempts = 0
        """The number of attempts of the present call in earlier micro-batches."""
        self._budget = self._new_budget(attempts, spent)

    async def run(self) -> InvocationResult:
        """Send the messages; return the effects of the replies, and the messages that have to wait."""
        postponed = None
        try:
            while self._handled < len(self._batch.invocations):
                if self._handled and self._is_over():
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
            postponed = self._after_outage(outage)
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
        if budget.has_to_rest and budget.attempts < FEW_FAILURES:
            # Some answers of a gateway are no outage yet: another server after it may answer the next request.
            return Trouble(self._outages, self._alone, budget.attempts, most=self._most)
        outages = self._outages + bool(budget.outage)
        if budget.was_away or budget.seconds <= 0:  # then the call gets its whole time again
            attempts = self._attempts if budget.was_away and not budget.outage else 0
            return Trouble(outages, self._alone, attempts, most=self._most)
        spent = self._limit - timedelta(seconds=budget.seconds)
        return Trouble(outages, self._alone, budget.attempts, spent, self._most)

    def _after_outage(self, outage: OutageError) -> Postponed | None:
        """Postpone the message during whose call the endpoint went down; fail it after several outages.

        The call had this message only, so no other message of this micro-batch has caused the outage.

        Returns:
            Which messages have to wait, and how long; None if no message is left.
        """
        self._budget.outage = ""
        if self._batch.has_company:  # calls that have left earlier micro-batches may be the reason
            server = self._client.server_of(self._batch.target)
            problem = f"endpoint {self._described(outage)}"
            return Postponed(self._handled, timedelta(0), problem=problem, suspect_of=server)
        self._alone += 1
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

    def _is_over(self) -> bool:
        """Return whether the time of the call is over, so that the remaining messages wait for another call."""
        if self._batch.is_alone and self._has_lasted(_HOLD):
            return True  # others wait meanwhile
        is_over = self._batch.is_over
        return self._has_lasted(self._limit) or (is_over is not None and is_over())

    def _has_lasted(self, duration: timedelta) -> bool:
        return time.monotonic() - self._begun >= duration.total_seconds()

    def _next_part(self) -> range:
        """Return the indexes of the messages that the next request contains."""
        most = 1 if self._batch.is_alone else self._most or self._endpoint.max_batch
        start, size = self._handled, 0
        for index in range(start, len(self._batch.invocations)):
            value = self._batch.invocations[index].argument.value
            size += len(value or b"") * 21 // 20 + _MESSAGE_BYTES
            if index > start and (size > self._endpoint.max_bytes or index - start == most):
                return range(start, index)
        return range(start, len(self._batch.invocations))

    def _new_budget(self, attempts: int = 0, spent: timedelta = timedelta(0)) -> Budget:
        """Return the limits of a call, given its number of attempts and its time in earlier micro-batches.

        A call that began in an earlier micro-batch gets time for an attempt in any case: answers of earlier
        micro-batches are not stored, so without a new answer, the error could not say why the call failed.
        """
        self._attempts = attempts
        hold = min(_HOLD, self._limit).total_seconds()
        return Budget(
            max((self._limit - spent).total_seconds(), hold),
            _ATTEMPTS_OF_PARTS if self._most else None,
            self._begun + hold,
            self._batch.is_alone,
            attempts,
        )

    async def _send(self, part: range) -> None:
        """Send some messages in a request; if it fails, the next requests have at most half as many messages."""
        try:
            await self._call(part)
        except (EndpointDownError, LaterError, OutageError, _OutOfTimeError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a reply causes is a failure of its messages
            if len(part) == 1:
                self._fail(part, error)
            else:
                self._most = len(part) // 2
            self._budget = self._new_budget()
            if self._has_lasted(_HOLD):
                raise _OutOfTimeError from None
        else:
            self._alone = 0
            self._outages = self._outages if self._batch.is_alone else 0
            if len(part) >= self._most:
                self._most = self._most * 2 if self._most * 2 < self._endpoint.max_batch else 0
            self._budget = self._new_budget()

    async def _call(self, part: range) -> None:
        """Send the messages with indexes in ``part`` in one request, and collect the effects of the reply."""
        target, facts = self._batch.target, self._facts
        invocations = self._batch.invocations[part.start : part.stop]
        trace = _common_trace(invocations)
        client = self._client
        url, caller = client.url_of(target), client.caller()
        empty = partial(request_of, target, {}, {}, ())
        is_unknown = partial(client.lacks, target, is_alone=self._batch.is_alone)
        problem = ""
        for _ in range(_MOST_QUESTIONS):
            sent = facts.values
            body = request_of(target, sent, self._state, invocations)
            if len(body) > self._endpoint.max_bytes:
                raise CallFailedError(
                    f"takes requests of {self._endpoint.max_bytes:,} bytes at most, but this request has "
                    f"{len(body):,}; raise payload_max_bytes"
                )
            read = partial(self._read, sent, trace)
            try:
                reply = await caller.call(url, body, empty, self._budget, read, is_unknown)
            except StaleReplyError as stale:
                is_second, problem = bool(problem), f"has answered with {stale}"
                facts.values = {}
                if is_second:
                    break
                continue
            client.has_replied(target)
            if isinstance(reply, InvocationResult):
                self._take(reply)
                expirations = [value.expiration for value in sent.values()]
                self._expiring = tuple(each for each in expirations if each is not None)
                self._handled = part.stop
                return
            if sent.keys() >= reply.keys():
                break
            client.learn(facts, reply)
            # Vain attempts before the reply do not count any more.
            self._budget = self._new_budget()
            if self._has_lasted(self._limit):
                if self._handled:  # earlier requests have taken a part of the time
                    raise _OutOfTimeError
                problem = (
                    f"has asked for {len(facts.values)} values until the time of the call, {self._limit}, was over; "
                    "raise the timeout 'call' if the function has to ask for them one after the other"
                )
                break
        names = ", ".join(sorted(facts.values))
        raise CallFailedError(problem or f"asks for its values {names} again and again")

    def _read(
        self, remote_values: Mapping[str, RemoteValue], trace: str | None, content: bytes
    ) -> InvocationResult | dict[str, RemoteValue]:
        """Decode a reply: return its effects, or the values that it asks for."""
        reply: FromFunction = reply_of(content)
        if reply.HasField("incomplete_invocation_context"):
            missing = missing_values(reply)
            if not missing:
                raise ReplyError("a request for missing values that names no value")
            return missing
        return effects_of(reply, remote_values, self._prepare, trace)

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
        """Return how to skip failed messages, for the error text; empty if a failure policy is declared."""
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
    """Return the trace-context headers of all messages of a request; None if the messages differ in them."""
    traces: set[Any] = {invocation.trace for invocation in invocations}
    return traces.pop() if len(traces) == 1 else None
