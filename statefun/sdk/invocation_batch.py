# SPDX-License-Identifier: Apache-2.0
"""What goes into an invocation of an address, and what comes out.

The two values mirror the request-reply protocol's ``InvocationBatchRequest`` and
``InvocationResponse``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The trace-context headers that it carries, 'name=value', a line each."""


class Trouble(NamedTuple):
    """What calls of an address elsewhere have come to, as far as they were in vain."""

    outages: int = 0
    """How often its endpoint went down with its messages, in a row."""
    alone: int = 0
    """How often it did with the first message, while it was called for nothing else."""
    attempts: int = 0
    """How often the call that is under way was tried."""
    spent: timedelta = timedelta(0)
    """The time of that call so far."""
    most: int = 0
    """How many messages to send at once; 0 for as many as allowed."""


NO_TROUBLE = Trouble()


class InvocationBatch(NamedTuple):
    """All messages for one address, in order, with the state that it has before them."""

    target: Address
    state: Mapping[str, TypedValue]
    invocations: Sequence[Invocation]
    record: FindRecord | None = None
    """Looks up an invocation's ingress record by its index; None: there are no records."""
    trouble: Trouble = NO_TROUBLE
    """With earlier calls of the address."""
    is_alone: bool = False
    """Whether nothing else is called on the same server meanwhile."""


@attrs.frozen
class FailedInvocation:
    """An invocation that raised. It has left no trace: all its effects were taken back."""

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
    """The end of a batch that has to wait, as nothing that could handle it is there."""

    first: int
    """The place of its first invocation in the batch."""
    wait: timedelta
    """After how long it is worth trying again."""
    is_down: bool = False
    """Whether the endpoint cannot be reached."""
    problem: str = ""
    """Why the call has to be repeated, for the log; empty if the log needs no line about it."""
    suspect_of: str = ""
    """The server that may be called for the address only in its turn; empty if there is none."""


class CircuitReport(NamedTuple):
    """What a process has found out about an endpoint: whether it can be reached."""

    endpoint: str
    """The URL of the endpoint, without its secrets."""
    problem: str | None
    """Why the endpoint cannot be reached; None if it can be reached again."""
    wait: timedelta = timedelta(0)
    """After how long the process asks the endpoint again."""


class InvocationResult(NamedTuple):
    """The effects of a batch."""

    state_mutations: Mapping[str, TypedValue | None]
    """New values by name; None deletes."""
    messages: Sequence[Message]
    """Messages to functions, in the order they were sent."""
    delayed: Sequence[DelayedMessage | Cancellation]
    """Messages to functions with a delay, and cancellations of such, in order."""
    egress_messages: Sequence[EgressMessage]
    """Records for egresses, in the order they were sent."""
    failures: Sequence[FailedInvocation]
    """The invocations that failed; all other effects are as if these messages had never come."""
    expiring: Sequence[Expiration] = ()
    """When values expire."""
    postponed: Postponed | None = None
    """The invocations that were not handled yet, if any."""
    trouble: Trouble = NO_TROUBLE
    """With calls of the address, for its next batch."""


class Transport(Protocol):
    """Invokes functions that run elsewhere."""

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Run a function over a batch, as a function that is here is run."""

    async def admit(self, target: Address, trouble: Trouble, turn: Turn | None) -> Postponed | None:
        """Ask, before messages are decoded, whether they have to wait; return None if not.

        Args:
            target: the address that has messages.
            trouble: with earlier ones.
            turn: the address that may be called alone in this micro-batch, if there is one.
        """

    def take_circuit_reports(self) -> Sequence[CircuitReport]:
        """Return what calls have found out about endpoints since this method was called last.

        A report that no task has taken, because it failed, waits for the next task of the process.
        """
