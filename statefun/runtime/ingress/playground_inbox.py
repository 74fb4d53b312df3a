# SPDX-License-Identifier: Apache-2.0
"""The inbox of the playground; a message that a person types waits until the one before is finished."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from statefun.engine.clock import Clock
from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.sdk.times import in_milliseconds

PLAYGROUND_INBOX = "playground"
"""The name of the inbox in the offset of the feedback source."""
_MOST_HELD = 16
"""The largest number of successive micro-batches for which messages typed by a person are held back."""
_LONGEST_WAIT = timedelta(minutes=1)
"""How long typed messages wait for messages in the states of addresses, such as those for an endpoint that is down.

An endpoint that is down is asked again after pauses of up to 30 seconds. So the messages for an endpoint that starts at the
same time as the application are handled one after the other.
"""


class PlaygroundInbox:
    """The messages that the playground has accepted.

    If only a few messages wait, a person has probably typed them, and expects that each message is finished
    before the next one begins, such as adding to a cart before paying. So no typed message is read while any
    message between functions of the application waits, and a micro-batch reads at most one typed message for
    each address. If functions send messages without end, a typed message waits for 16 micro-batches at most.

    If messages wait in the states of their addresses, for an endpoint or the end of a long call, an address that has got a
    typed message before gets the next one when no message waits any more, or after a minute.

    Args:
        store: the playground's database.
        gauge: counts the messages that wait in the states of their addresses.
        clock: measures how long they wait.
    """

    is_durable = True

    def __init__(self, store: PlaygroundStore, gauge: WaitingGauge, clock: Clock) -> None:
        self._store = store
        self._gauge = gauge
        self._clock = clock
        self._waiting_since: int | None = None
        """Since when messages wait in the states of their addresses, in milliseconds of the monotonic clock."""
        self._typed: frozenset[bytes] = frozenset()
        """The addresses that have got typed messages since the application was last without unfinished messages."""
        self._is_holding = False
        """Whether a message waits because its address has got another one before."""
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
        unfinished = self._unfinished(is_busy=is_busy)
        last = self._store.readable(after)
        typed = None if last == after else self._store.typed(after, unfinished)
        if typed is not None and is_busy and self._held < _MOST_HELD:
            self._held += 1
            return after
        self._held = 0
        self._is_holding = typed == after
        if typed is None:
            return last
        last = min(last, typed)
        read = self._store.posted(after, last)
        self._typed = unfinished | {message.target for message in read}
        return last

    def _unfinished(self, *, is_busy: bool) -> frozenset[bytes]:
        """Return the addresses that get no typed message now, as messages wait in the states of their addresses."""
        if self._gauge.messages <= 0:
            self._waiting_since = None
            if not is_busy:
                self._typed = frozenset()
            return frozenset()
        now = self._clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        has_waited_long = now - self._waiting_since >= in_milliseconds(_LONGEST_WAIT)
        return frozenset() if has_waited_long else self._typed

    def messages(self, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the messages with numbers from ``after + 1`` to ``last``, in order."""
        return self._store.posted(after, last)

    def is_pending(self) -> bool:
        """Return whether a message waits because its address has got another one before, so that a run must not end.

        A run does not wait for messages that clients may send to the playground later.
        """
        return self._is_holding

    def forget(self, last: int) -> None:
        """Delete the messages up to number ``last``: the micro-batches that have read them are not repeated."""
        self._store.forget(last)
