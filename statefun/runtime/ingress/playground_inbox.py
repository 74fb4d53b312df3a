# SPDX-License-Identifier: Apache-2.0
"""The inbox of the playground; a message that a person types waits until the one before is finished."""

from __future__ import annotations

from collections.abc import Sequence

from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.runtime.checkpoint.playground_store import PlaygroundStore

PLAYGROUND_INBOX = "playground"
"""The name of the inbox in the offset of the feedback source."""
_MOST_HELD = 16
"""The largest number of successive micro-batches for which messages typed by a person are held back."""


class PlaygroundInbox:
    """The messages that the playground has accepted.

    If only a few messages wait, a person has probably typed them, and expects that each message is finished
    before the next one begins, such as adding to a cart before paying. So no typed message is read while any
    message between functions of the application waits, and a micro-batch reads at most one typed message for
    each address. If functions send messages without end, a typed message waits for 16 micro-batches at most.
    """

    is_durable = True

    def __init__(self, store: PlaygroundStore) -> None:
        self._store = store
        self._held = 0
        """How many micro-batches in a row have not read the messages that wait."""

    def open(self) -> None:
        """Let clients of the playground in."""
        self._store.open()

    def readable(self, after: int, *, is_busy: bool) -> int:
        """Return the number of the last message that the next micro-batch reads; ``after`` if it reads none.

        Args:
            after: the number of the last message that earlier micro-batches have read.
            is_busy: whether the next micro-batch delivers messages between functions; messages that a person
                has typed wait for them.
        """
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
        """Return False: a run does not wait for messages that clients may send to the playground later."""
        return False

    def forget(self, last: int) -> None:
        """Delete the messages up to number ``last``: the micro-batches that have read them are not repeated."""
        self._store.forget(last)
