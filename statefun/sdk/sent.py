# SPDX-License-Identifier: Apache-2.0
"""What the invocations of an address have sent: messages, delayed messages, cancellations and egress records."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from statefun.sdk.address import Address
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import FunctionError
from statefun.sdk.message import Message


class DelayedMessage(NamedTuple):
    """A message with a delay before its delivery."""

    delay: timedelta
    """The time from the end of the invocation that sends the message to its delivery; not negative."""
    message: Message
    cancellation_token: str
    """The token that cancels the message; empty if nobody can cancel it."""
    due: int | None = None
    """The event time at which the message is due, in milliseconds since the epoch; None if it waits for ``delay``."""


class Cancellation(NamedTuple):
    """The request to cancel the delayed message that was sent with a cancellation token."""

    cancellation_token: str


class WakeUp(NamedTuple):
    """A message without content that an address sends itself; nobody can cancel it.

    Functions with windows and joins send them: the engine keeps many of them in little space.
    """

    due: int
    """The event time at which the message is due, in milliseconds since the epoch."""
    typename: str
    """The type of the message."""
    step: int = 0
    """By how much the due times of such messages differ, in milliseconds; 0 if they are arbitrary."""
    trace: str = ""
    """The trace-context headers of the message in whose invocation it is sent; empty if it has none."""


def token_in_use(sender: Address, token: str) -> FunctionError:
    """Return the error for a delayed message whose token another pending message already has.

    Addresses with the same id share their tokens: a token names at most one of their pending messages.
    """
    error = FunctionError(
        f"function {sender.typename} at address {sender} has sent a delayed message with the "
        f"cancellation token {token!r}, which the id {sender.id} already uses for a delayed message "
        "that is still pending; cancel that message first, or use another token"
    )
    error.way_out = (
        f"; the message is sent already: to go on without it, give {sender.typename} the argument on_failure='skip', "
        "or an egress a deadLetterTopic"
    )
    return error


def no_event_time(sender: Address) -> FunctionError:
    """Return the error for a message that is due at an event time, in an application without event time."""
    return FunctionError(
        f"function {sender.typename} at address {sender}: send_at needs event time, which no ingress declares: add "
        "eventTime to an ingress, or use send_after (functions behind endpoints have no event time)"
    )


class Sent:
    """The messages that the invocations of an address have sent so far, in order."""

    __slots__ = ("delayed", "egress_messages", "messages", "wake_ups")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """Messages to functions."""
        self.delayed: list[DelayedMessage | Cancellation] = []
        """Messages to functions with a delay, and cancellations of such messages."""
        self.wake_ups: list[WakeUp] = []
        """Messages in event time that the address sends itself."""
        self.egress_messages: list[EgressMessage] = []
        """Records for egresses."""

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many messages of each kind were sent so far, for :meth:`take_back`."""
        return (
            len(self.messages),
            len(self.delayed),
            len(self.wake_ups),
            len(self.egress_messages),
        )

    def take_back(self, counts: tuple[int, int, int, int]) -> None:
        """Remove the messages that were sent after :meth:`counts` returned ``counts``."""
        messages, delayed, wake_ups, egress_messages = counts
        del self.wake_ups[wake_ups:]
        del self.messages[messages:]
        del self.delayed[delayed:]
        del self.egress_messages[egress_messages:]

    def add(self, sent: Sent) -> None:
        """Add all messages of another object, in order."""
        self.messages += sent.messages
        self.delayed += sent.delayed
        self.wake_ups += sent.wake_ups
        self.egress_messages += sent.egress_messages
