# SPDX-License-Identifier: Apache-2.0
"""The input and the output of an invocation: a batch of messages with state, and its effects.

They correspond to ``InvocationBatchRequest`` and ``InvocationResponse`` of the request-reply protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import attrs

from statefun.sdk.address import Address
from statefun.sdk.context import PrepareMessage
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import InvocationError
from statefun.sdk.message import FindRecord, Message
from statefun.sdk.sent import Cancellation, DelayedMessage, WakeUp
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration


class Invocation(NamedTuple):
    """One message to the target of a batch."""

    caller: Address | None
    """The address that has sent the message; None for a message from outside, such as a record."""
    argument: TypedValue
    """The value of the message."""
    trace: str | None = None
    """The trace-context headers of the message: ``name=value``, one per line."""


class Trouble(NamedTuple):
    """The failed attempts to call an address behind an endpoint, kept for the next call of the address."""

    outages: int = 0
    """How many times in a row the endpoint went down during requests with messages of the address."""
    alone: int = 0
    """How many times in a row the endpoint went down while its server was called for this address alone."""
    attempts: int = 0
    """How many requests of the present call have brought no reply."""
    spent: timedelta = timedelta(0)
    """The time that the present call has taken in earlier micro-batches."""
    most: int = 0
    """The largest number of messages per request; 0 for the endpoint's own limit."""


NO_TROUBLE = Trouble()
"""The value for an address without failed attempts."""


IsOver = Callable[[], bool]
"""A function that returns whether a call has used up its time, so that it handles no further message."""


class InvocationWatch(Protocol):
    """Watches a call: is told which message the call handles, in the thread or task that handles it."""

    def begin(self, index: int) -> None:
        """Note that the call has handled the message before this index, and begins with the one at this index."""

    def end(self) -> None:
        """Note that the last message has been handled."""


class InvocationBatch(NamedTuple):
    """All messages to one address, in order, with the state of the address before these messages."""

    target: Address
    state: Mapping[str, TypedValue]
    invocations: Sequence[Invocation]
    record: FindRecord | None = None
    """A function that returns the ingress record of an invocation by its index; None if none has one."""
    trouble: Trouble = NO_TROUBLE
    """The failed attempts to call the address before this batch."""
    is_alone: bool = False
    """Whether the function's server is called for no other address in this micro-batch."""
    is_over: IsOver | None = None
    """A function that returns True once the call has used up its time; None if the time is not limited.

    The call then handles no further message of the batch; another call gets the remaining messages.
    """
    times: Sequence[int | None] | None = None
    """The event time of each message, in milliseconds since the epoch; None if no ingress declares event time."""
    watermark: int | None = None
    """The watermark, in milliseconds since the epoch; None if there is none."""
    has_company: bool = False
    """Whether calls that have left earlier micro-batches may go on at the server, although ``is_alone``."""
    watch: InvocationWatch | None = None
    """Is told which message the call handles; None if nothing watches the call."""


@attrs.frozen
class FailedInvocation:
    """An invocation that has failed; all its effects were taken back."""

    index: int
    """The index of the invocation in the batch."""
    error: InvocationError
    """The failure, with a text for users."""
    cause: str
    """The class name of the exception that the function has raised."""
    traceback: str
    """The traceback, with all frames of users' code and some of libraries; empty for an error without traceback."""


class Turn(NamedTuple):
    """The turn of a suspect: a micro-batch in which a server is called for the suspect's address alone."""

    address: Address
    """The address of the suspect, whose messages may have crashed the server."""
    server: str
    """The server: its URL without the path, or the file of its Unix socket."""
    has_company: bool = False
    """Whether calls that have left earlier micro-batches go on at the server: one of them may crash it."""
    waits: bool = False
    """Whether the suspect waits, too, until these calls have ended."""

    def is_of(self, address: Address) -> bool:
        """Return whether an address is the suspect, and may be called now."""
        return self.address == address and not self.waits


class Postponed(NamedTuple):
    """The last invocations of a batch, which have to wait for a later call: they cannot be handled now."""

    first: int
    """The index, in the batch, of the first invocation that has to wait."""
    wait: timedelta
    """How long the invocations have to wait; zero: until the next micro-batch."""
    is_down: bool = False
    """Whether the reason is that the endpoint cannot be reached."""
    problem: str = ""
    """Why the call has to be made again, for the log; empty if nothing is to be logged."""
    suspect_of: str = ""
    """The server that the address may have crashed, if the address waits for its turn; otherwise empty."""


class CircuitReport(NamedTuple):
    """Whether an endpoint can be reached, as the calls of a process have shown."""

    endpoint: str
    """The URL of the endpoint, without its secrets."""
    problem: str | None
    """Why the endpoint cannot be reached; None if it can be reached again."""
    wait: timedelta = timedelta(0)
    """The time until the process sends the next request to the endpoint."""


class InvocationResult(NamedTuple):
    """The effects of an invocation batch."""

    state_mutations: Mapping[str, TypedValue | None]
    """New values by name; None deletes a value."""
    messages: Sequence[Message]
    """Messages to functions, in the order they were sent."""
    delayed: Sequence[DelayedMessage | Cancellation]
    """Delayed messages to functions, and cancellations of delayed messages, in the order they were sent."""
    egress_messages: Sequence[EgressMessage]
    """Records for egresses, in the order they were sent."""
    failures: Sequence[FailedInvocation]
    """The invocations that have failed; their effects were taken back."""
    expiring: Sequence[Expiration] = ()
    """Which values of the address expire, and after which time."""
    postponed: Postponed | None = None
    """The invocations that have to wait for a later call; None if all were handled or have failed."""
    trouble: Trouble = NO_TROUBLE
    """The failed attempts to call the address, kept for the next call of the address."""
    wake_ups: Sequence[WakeUp] = ()
    """Messages in event time that the address sends itself, in the order they were sent."""


class Transport(Protocol):
    """Calls functions behind endpoints."""

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Call a function with the messages of a batch, and return the effects.

        Args:
            batch: the messages, and the state of their address.
            prepare: checks and converts each message and record before it is sent; None to send all as they are.
        """

    async def admit(self, target: Address, trouble: Trouble, turn: Turn | None) -> Postponed | None:
        """Return why the messages of an address have to wait; None if they can be decoded and sent now.

        Args:
            target: the address.
            trouble: the failed attempts to call the address.
            turn: the suspect that has its turn in this micro-batch; None if no address has one.
        """

    def server_of(self, target: Address) -> str:
        """Return the server that is called for an address, as in :class:`Turn`; empty if that is not known."""

    def take_circuit_reports(self) -> Sequence[CircuitReport]:
        """Return a report on each endpoint whose state has changed since the last call of this method.

        If a task fails before it calls this method, the next task of the process gets the reports.
        """
