# SPDX-License-Identifier: Apache-2.0
"""Due times of delayed messages, to the millisecond.

The runtime opens buckets four times a second. Under test, each message comes at its own due time: a
bucket of the engine gets its tick as soon as a message in it is due.
"""

from __future__ import annotations

import heapq

from statefun.engine.address_keys import typename_of
from statefun.engine.buckets import DELAYED
from statefun.engine.delays import delayed_messages
from statefun.engine.wheel import CANCELLABLE, TIMERS_NAMESPACE
from statefun.protocol.runtime_pb2 import AddressState, Bucket

_TOKENS = f"{TIMERS_NAMESPACE}/{CANCELLABLE}"


class DueTimes:
    """The due times of waiting messages, in milliseconds since the epoch."""

    def __init__(self) -> None:
        self._buckets: list[tuple[int, bytes]] = []
        """A heap of due times of messages in buckets, with the bucket's key."""
        self._in_buckets: set[tuple[int, bytes]] = set()
        """The same: a bucket sends messages that are not due yet again, to itself or to another one."""
        self._messages: list[int] = []
        """A heap of due times of messages that nobody can cancel."""
        self._dues: set[int] = set()
        """The same."""
        self._tokens: list[tuple[int, bytes]] = []
        """A heap of due times of messages that a token can cancel, with the key of the token's address."""
        self._cancellable: dict[bytes, int] = {}
        """The due time of the first message that waits at the address of a token, by its key."""

    def add(self, bucket: bytes, content: bytes) -> None:
        """Add the due times of messages that were sent to a bucket.

        Args:
            bucket: the key of the bucket.
            content: the messages, encoded.
        """
        for entry in Bucket.FromString(content).messages:
            if (entry.due, bucket) not in self._in_buckets:
                self._in_buckets.add((entry.due, bucket))
                heapq.heappush(self._buckets, (entry.due, bucket))
        for message in delayed_messages(DELAYED, content):
            if message.due not in self._dues:
                self._dues.add(message.due)
                heapq.heappush(self._messages, message.due)

    def update(self, key: bytes, state: bytes | None) -> None:
        """Update the due times of a token by its new state; states of other addresses have none."""
        if typename_of(key) != _TOKENS:
            return
        self._cancellable.pop(key, None)
        values = AddressState.FromString(state or b"").values
        dues = [
            message.due
            for each in values
            for message in delayed_messages(each.typename, each.value)
        ]
        if dues:
            self._cancellable[key] = min(dues)
            heapq.heappush(self._tokens, (min(dues), key))

    def next(self) -> int | None:
        """Return when the next message is due that a function has sent; None if none waits."""
        while self._tokens and self._cancellable.get(self._tokens[0][1]) != self._tokens[0][0]:
            heapq.heappop(self._tokens)
        return min((*self._messages[:1], *(due for due, _ in self._tokens[:1])), default=None)

    def take(self, now: int) -> list[bytes]:
        """Remove the due times up to ``now``; return the keys of the buckets with due messages."""
        while self._messages and self._messages[0] <= now:
            self._dues.remove(heapq.heappop(self._messages))
        keys: dict[bytes, None] = {}
        while self._buckets and self._buckets[0][0] <= now:
            first = heapq.heappop(self._buckets)
            self._in_buckets.remove(first)
            keys[first[1]] = None
        return list(keys)
