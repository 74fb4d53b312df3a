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
    """The event time at which the message is due, in milliseconds since the epoch; None if the delay counts."""


class Cancellation(NamedTuple):
    """The request to cancel the delayed message that was sent with a cancellation token."""

    cancellation_token: str


def token_in_use(sender: Address, token: str) -> FunctionError:
    """Return the error for a delayed message whose token another pending message already has.

    Addresses with the same id share their tokens: a token names at most one of their pending messages.
    """
    return FunctionError(
        f"function {sender.typename} at address {sender} has sent a delayed message with the "
        f"cancellation token {token!r}, which the id {sender.id} already uses for a delayed message "
        "that is still pending; cancel that message first, or use another token"
    )


class Sent:
    """The messages that the invocations of an address have sent so far, in order."""

    __slots__ = ("delayed", "egress_messages", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        """Messages to functions."""
        self.delayed: list[DelayedMessage | Cancellation] = []
        """Messages to functions with a delay, and cancellations of such messages."""
        self.egress_messages: list[EgressMessage] = []
        """Records for egresses."""

    def counts(self) -> tuple[int, int, int]:
        """Return how many messages, delayed messages and egress records were sent, for :meth:`take_back`."""
        return len(self.messages), len(self.delayed), len(self.egress_messages)

    def take_back(self, counts: tuple[int, int, int]) -> None:
        """Remove the messages that were sent after :meth:`counts` returned ``counts``."""
        messages, delayed, egress_messages = counts
        del self.messages[messages:]
        del self.delayed[delayed:]
        del self.egress_messages[egress_messages:]

    def copy(self) -> Sent:
        """Return a copy; messages that are added to the copy are not added to this object."""
        copied = Sent()
        copied.messages += self.messages
        copied.delayed += self.delayed
        copied.egress_messages += self.egress_messages
        return copied
