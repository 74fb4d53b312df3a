# SPDX-License-Identifier: Apache-2.0
"""Inboxes: numbered messages to functions that come from outside the query, not from an ingress.

An inbox accepts messages and numbers them. The feedback source reads them by their numbers; its
offset has one number for each inbox. So an inbox is no source of Spark's query. The sources of the query have to stay
the same from run to run, but an application may have an inbox in one run and not in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class AcceptedMessage(NamedTuple):
    """A message that an inbox has accepted: it is on the disk and has a number."""

    number: int
    target: bytes
    """The target's address, encoded as the key of its state."""
    typename: str
    value: bytes


class Inbox(Protocol):
    """The messages that one inbox has accepted, numbered from 1 without gaps; no number is used twice.

    The feedback source calls all methods in one thread, while
    other threads may add messages.
    """

    is_durable: bool
    """Whether accepted messages are on the disk. If not, a crash loses them, even the messages that a planned
    micro-batch reads, and the sender of a lost message must send the message again."""

    def open(self) -> None:
        """Begin to accept messages, if the inbox has waited for it: micro-batches of earlier runs are repeated by now.

        The feedback source calls it before each plan, also while it delivers nothing, as the application is paused.
        """

    def readable(self, after: int, *, is_busy: bool) -> int:
        """Return the number of the last message that the next micro-batch reads.

        Args:
            after: the number of the last message that earlier micro-batches have read; this number is
                returned if the next micro-batch reads no message.
            is_busy: whether the next micro-batch delivers messages between functions; an inbox may
                keep its own messages back until there are no such messages.
        """

    def messages(self, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the messages with numbers from ``after + 1`` to ``last``, in order.

        Spark may repeat a micro-batch. So the result is the same each time, until :meth:`forget` deletes the
        messages.
        """

    def is_pending(self) -> bool:
        """Return whether further messages will be accepted for sure, so that a bounded run waits for them."""

    def forget(self, last: int) -> None:
        """Delete the messages up to number ``last``: the micro-batches that have read them are not repeated."""
