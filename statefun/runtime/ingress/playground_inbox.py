# SPDX-License-Identifier: Apache-2.0
"""The inbox of the playground: people type its messages, and mean the order in which they typed them."""

from __future__ import annotations

from collections.abc import Sequence

from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.runtime.checkpoint.playground_store import PlaygroundStore

PLAYGROUND_INBOX = "playground"
"""The name of the inbox in the offset of the feedback source."""
_MOST_HELD = 16
"""How many micro-batches in a row leave out messages that somebody has typed."""


class PlaygroundInbox:
    """The messages that the playground has accepted.

    If so few wait that somebody types them, the next message to an address is delivered after the messages
    that the previous one has caused: whoever adds to a cart, and pays, means this order. Functions that send
    without end hold back the messages for a few micro-batches only.
    """

    is_durable = True

    def __init__(self, store: PlaygroundStore) -> None:
        self._store = store
        self._held = 0
        """How many micro-batches in a row have left out the messages that wait."""

    def readable(self, after: int, *, is_busy: bool) -> int:
        """Return the number of the last message that the next micro-batch reads."""
        last = self._store.readable(after)
        typed = None if last == after else self._store.typed(after)
        if typed is not None and is_busy and self._held < _MOST_HELD:
            self._held += 1
            return after
        self._held = 0
        return last if typed is None else min(last, typed)

    def messages(self, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the messages with numbers from ``after + 1`` to ``last``, in order."""
        return self._store.posted(after, last)

    def is_pending(self) -> bool:
        """Return False: nobody knows what people will type."""
        return False

    def forget(self, last: int) -> None:
        """Delete the messages up to ``last``."""
        self._store.forget(last)
