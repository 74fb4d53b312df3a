# SPDX-License-Identifier: Apache-2.0
"""Inboxes: messages to functions that come from outside the query, not from an ingress.

An inbox accepts messages and numbers them. The feedback source reads them by their numbers; its
offset has one number for each inbox. So an inbox is no source of Spark's query, whose sources a checkpoint
fixes: inboxes may come and go from one run to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class AcceptedMessage(NamedTuple):
    """A message that an inbox has accepted."""

    number: int
    target: bytes
    """The key of the target's address."""
    typename: str
    value: bytes


class Inbox(Protocol):
    """Accepted messages, numbered from 1 without gaps; a number is never used again.

    The feedback source calls all methods in one thread, while
    other threads may add messages.
    """

    is_durable: bool
    """Whether accepted messages are on the disk. Others are gone after a crash, also those that a micro-batch
    was planned with: whoever has sent them sends them again."""

    def readable(self, after: int, *, is_busy: bool) -> int:
        """Return the number of the last message that the next micro-batch reads.

        Args:
            after: the number of the last message that earlier micro-batches have read; it is returned if
                the next micro-batch reads none.
            is_busy: whether the next micro-batch delivers messages between functions.
        """

    def messages(self, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the messages with numbers from ``after + 1`` to ``last``, in order.

        A micro-batch may be repeated: until :meth:`forget` is called, the result is the same each time.
        """

    def is_pending(self) -> bool:
        """Return whether messages will come by themselves, for which a bounded run waits."""

    def forget(self, last: int) -> None:
        """Delete the messages up to ``last``: no later run repeats the micro-batches that have read them."""
