# SPDX-License-Identifier: Apache-2.0
"""The input and the output of an invocation batch.

Both mirror the request-reply protocol's ``InvocationBatchRequest`` and
``InvocationResponse``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import attrs

from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation, DelayedMessage, PrepareMessage
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import InvocationError
from statefun.sdk.message import FindRecord, Message
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration


class Invocation(NamedTuple):
    """One message for the target of a batch."""

    caller: Address | None
    argument: TypedValue
    trace: str | None = None
    """The trace-context headers of the message: ``name=value``, one per line."""


class Trouble(NamedTuple):
    """The failed attempts to call an address behind an endpoint, as its next call has to know them."""

    outages: int = 0
    """How many times in a row the endpoint went down during requests of the address."""
    alone: int = 0
    """How many times it went down with the first message, while it was called for no other address."""
    attempts: int = 0
    """How many times the present call was tried."""
    spent: timedelta = timedelta(0)
    """The time that the present call has taken so far."""
    most: int = 0
    """The largest number of messages per request; 0 for the endpoint's own limit."""


NO_TROUBLE = Trouble()


IsOver = Callable[[], bool]
"""Returns whether some time is over."""


class InvocationBatch(NamedTuple):
    """All messages for one address, in order, with the state that it has before them."""

    target: Address
    state: Mapping[str, TypedValue]
    invocations: Sequence[Invocation]
    record: FindRecord | None = None
    """Looks up an invocation's ingress record by its index; None: there are no records."""
    trouble: Trouble = NO_TROUBLE
    """The failed attempts to call the address before this batch."""
    is_alone: bool = False
    """Whether the server is called for no other address in this micro-batch."""
    is_over: IsOver | None = None
    """Whether the time of the batch is over: then no further invocation begins. None: all are made."""


@attrs.frozen
class FailedInvocation:
    """An invocation that has failed; all its effects were taken back."""

    index: int
    """The place of the invocation in the batch."""
    error: InvocationError
    cause: str
    """The class name of the exception."""
    traceback: str
    """The traceback, with all frames of users' code and some of libraries; empty if there is none."""


class Turn(NamedTuple):
    """The right of one address to be called while its server is called for nothing else."""

    address: Address
    server: str


class Postponed(NamedTuple):
    """The last invocations of a batch, which have to wait: their endpoint cannot handle them now."""

    first: int
    """The place of its first invocation in the batch."""
    wait: timedelta
    """The wait before the next attempt."""
    is_down: bool = False
    """Whether the endpoint cannot be reached."""
    problem: str = ""
    """Why the call has to be repeated, for the log; empty if the log needs no line about it."""
    suspect_of: str = ""
    """The server that may be called for the address only in its turn; empty if there is none."""


class CircuitReport(NamedTuple):
    """The state of an endpoint as a process has found it: reachable or not."""

    endpoint: str
    """The URL of the endpoint, without its secrets."""
    problem: str | None
    """Why the endpoint cannot be reached; None if it can be reached again."""
    wait: timedelta = timedelta(0)
    """The wait before the process asks the endpoint again."""


class InvocationResult(NamedTuple):
    """The effects of a batch."""

    state_mutations: Mapping[str, TypedValue | None]
    """New values by name; None deletes a value."""
    messages: Sequence[Message]
    """Messages to functions, in the order they were sent."""
    delayed: Sequence[DelayedMessage | Cancellation]
    """Messages to functions with a delay, and cancellations of such, in order."""
    egress_messages: Sequence[EgressMessage]
    """Records for egresses, in the order they were sent."""
    failures: Sequence[FailedInvocation]
    """The invocations that failed; all other effects are as if these messages had never come."""
    expiring: Sequence[Expiration] = ()
    """When values of the address expire."""
    postponed: Postponed | None = None
    """The invocations that were not handled yet, if any."""
    trouble: Trouble = NO_TROUBLE
    """The failed attempts to call the address, for its next batch."""


class Transport(Protocol):
    """Invokes functions behind endpoints."""

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Run a function over a batch, and return its effects."""

    async def admit(self, target: Address, trouble: Trouble, turn: Turn | None) -> Postponed | None:
        """Return the wait of messages that cannot be sent now, before they are decoded; None if they can.

        Args:
            target: the address that has messages.
            trouble: the failed attempts to call it.
            turn: the address that may be called alone in this micro-batch, if there is one.
        """

    def take_circuit_reports(self) -> Sequence[CircuitReport]:
        """Return the states of endpoints that have changed since the last call of this method.

        A report that no task has taken, because it failed, waits for the next task of the process.
        """
