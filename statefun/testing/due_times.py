# SPDX-License-Identifier: Apache-2.0
"""When delayed messages are due, to the millisecond.

The runtime looks at its buckets four times a second. A test asks for the time of each message: the
buckets are the engine's, and get their tick when a message in them is due.
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
    """The times of what waits, in milliseconds since the epoch."""

    def __init__(self) -> None:
        self._buckets: list[tuple[int, bytes]] = []
        """A heap: when something in a bucket is due, with the bucket's key."""
        self._known: set[tuple[int, bytes]] = set()
        """The same: a bucket sends what is not due yet once more, to itself or to another one."""
        self._messages: list[int] = []
        """A heap: when messages are due that nobody can cancel."""
        self._dues: set[int] = set()
        """The same."""
        self._tokens: list[tuple[int, bytes]] = []
        """A heap: when messages are due that a token can cancel, with the token's address."""
        self._cancellable: dict[bytes, int] = {}
        """When the first message is due that waits at the address of a token."""

    def add(self, bucket: bytes, content: bytes) -> None:
        """Add messages that were sent to a bucket, given its key, to wait there."""
        for entry in Bucket.FromString(content).messages:
            if (entry.due, bucket) not in self._known:
                self._known.add((entry.due, bucket))
                heapq.heappush(self._buckets, (entry.due, bucket))
        for message in delayed_messages(DELAYED, content):
            if message.due not in self._dues:
                self._dues.add(message.due)
                heapq.heappush(self._messages, message.due)

    def stored(self, key: bytes, state: bytes | None) -> None:
        """Take note of the new state of an address, which may be a token's."""
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
        """Return the keys of the buckets in which something is due; forget what is due there."""
        while self._messages and self._messages[0] <= now:
            self._dues.remove(heapq.heappop(self._messages))
        keys: dict[bytes, None] = {}
        while self._buckets and self._buckets[0][0] <= now:
            first = heapq.heappop(self._buckets)
            self._known.remove(first)
            keys[first[1]] = None
        return list(keys)
