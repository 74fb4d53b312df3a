# SPDX-License-Identifier: Apache-2.0
"""Due times of delayed messages, to the millisecond.

The runtime opens buckets four times a second. Under test, each message is delivered at its own due
time: a bucket gets its tick as soon as a message in the bucket is due.
"""

from __future__ import annotations

import heapq

from statefun.engine.address_keys import address_of, typename_of
from statefun.engine.buckets import DELAYED
from statefun.engine.delays import delayed_messages, messages_in
from statefun.engine.wheel import (
    CANCELLABLE,
    TIMERS_NAMESPACE,
    bucket_of_id,
    due_tick,
    is_of_event_time,
)
from statefun.protocol.runtime_pb2 import AddressState

_TOKENS = f"{TIMERS_NAMESPACE}/{CANCELLABLE}"


class DueTimes:
    """The due times of waiting messages, in milliseconds since the epoch.

    Args:
        in_event_time: whether the due times are in event time; otherwise, they are times of the clock.
    """

    def __init__(self, *, in_event_time: bool = False) -> None:
        self._in_event_time = in_event_time
        self._buckets: list[tuple[int, bytes]] = []
        """A heap of the due times of messages in buckets, each with the bucket's encoded address."""
        self._in_buckets: set[tuple[int, bytes]] = set()
        """The items of ``_buckets``, so that no item is added twice."""
        self._messages: list[int] = []
        """A heap of the due times of messages without a token, which cannot be cancelled."""
        self._dues: set[int] = set()
        """The items of ``_messages``, so that no due time is added twice."""
        self._tokens: list[tuple[int, bytes]] = []
        """A heap of the due times of messages with a token, each with the token's encoded address."""
        self._cancellable: dict[bytes, int] = {}
        """The earliest due time of the messages that wait at a token's address, by the encoded address."""

    def add(self, bucket: bytes, content: bytes) -> None:
        """Add the due times of messages that were sent to a bucket.

        Args:
            bucket: the encoded address of the bucket.
            content: the messages, encoded.
        """
        if is_of_event_time(due_tick(bucket_of_id(address_of(bucket).id))) != self._in_event_time:
            return
        for entry in messages_in(content):
            if (entry.due, bucket) not in self._in_buckets:
                self._in_buckets.add((entry.due, bucket))
                heapq.heappush(self._buckets, (entry.due, bucket))
        for message in delayed_messages(DELAYED, content):
            if message.due not in self._dues:
                self._dues.add(message.due)
                heapq.heappush(self._messages, message.due)

    def update(self, key: bytes, state: bytes | None) -> None:
        """Read the due times of messages with a token from the new state of the token's address.

        The state of an address that is not a token's has no due times, and is ignored.

        Args:
            key: the encoded address.
            state: the encoded state; None if the address has no state any more.
        """
        if typename_of(key) != _TOKENS:
            return
        self._cancellable.pop(key, None)
        values = AddressState.FromString(state or b"").values
        dues = [
            message.due
            for each in values
            for message in delayed_messages(each.typename, each.value)
            if message.in_event_time == self._in_event_time
        ]
        if dues:
            self._cancellable[key] = min(dues)
            heapq.heappush(self._tokens, (min(dues), key))

    def next(self) -> int | None:
        """Return the due time of the next delayed message; None if no delayed message waits."""
        while self._tokens and self._cancellable.get(self._tokens[0][1]) != self._tokens[0][0]:
            heapq.heappop(self._tokens)
        return min((*self._messages[:1], *(due for due, _ in self._tokens[:1])), default=None)

    @property
    def first_bucket(self) -> int | None:
        """The earliest due time of the messages in buckets, including cancelled messages; None if there are none."""
        return self._buckets[0][0] if self._buckets else None

    def take(self, now: int) -> list[bytes]:
        """Remove the due times up to ``now``; return the encoded addresses of buckets with due messages."""
        while self._messages and self._messages[0] <= now:
            self._dues.remove(heapq.heappop(self._messages))
        keys: dict[bytes, None] = {}
        while self._buckets and self._buckets[0][0] <= now:
            first = heapq.heappop(self._buckets)
            self._in_buckets.remove(first)
            keys[first[1]] = None
        return list(keys)
