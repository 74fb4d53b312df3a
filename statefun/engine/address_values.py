# SPDX-License-Identifier: Apache-2.0
"""The state of one address while its messages are handled."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial

import attrs
from google.protobuf.message import DecodeError

from statefun.engine.clock import Clock
from statefun.engine.row import Row
from statefun.engine.under_way import UnderWay
from statefun.engine.wheel import rounded_up
from statefun.protocol.runtime_pb2 import AddressState
from statefun.sdk.errors import CheckpointError
from statefun.sdk.invocation_batch import NO_TROUBLE, Trouble
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

_NEVER = -2
_make_value = partial(tuple.__new__, TypedValue)


@attrs.define
class Chunks:
    """The numbers of the chunks in which further messages of an address wait; see ``chunks``."""

    first: int = 0
    """The first chunk; all chunks before it have come back."""
    asked: int = 0
    """The first chunk that was not asked for yet."""
    end: int = 0
    """The number after that of the last chunk."""
    size: int = 0
    """Bytes of the messages in the last chunk."""

    def __bool__(self) -> bool:
        return self.first < self.end


class AddressValues:
    """The state of one address, and its immediate messages, during dispatching."""

    __slots__ = (
        "_expiries",
        "_overflowed_in",
        "_wake",
        "changed",
        "chunks",
        "immediate",
        "immediate_count",
        "is_held_back",
        "is_not_admitted",
        "later",
        "lost",
        "trouble",
        "under_way",
        "values",
        "waiting",
        "waiting_size",
        "waiting_until",
    )

    def __init__(self, stored: bytes | None) -> None:
        self.values: dict[str, TypedValue] = {}
        """The current values by name."""
        self.changed = False
        """Whether they differ from the stored values."""
        self.immediate: deque[Row] = deque()
        """Messages of the address that are delivered in the same micro-batch."""
        self.immediate_count = 0
        """The number of immediate messages so far."""
        self.waiting: list[bytes] = []
        """The first messages that wait for a call, in order; each is a serialized ``Retry``."""
        self.chunks = Chunks()
        """The chunks with the messages that come after ``waiting``."""
        self.trouble = NO_TROUBLE
        """The trouble with calls of the address's function, if a transport invokes it."""
        self.is_held_back = False
        """Whether the address is not called any more in this micro-batch, as a call was postponed."""
        self.is_not_admitted = False
        """Whether messages of the address to itself need a transport that has not admitted a call yet."""
        self.waiting_size = 0
        """Approximate size of ``waiting``, in bytes."""
        self.waiting_until = 0
        """When to call again, in milliseconds since the epoch; 0 for now."""
        self.later: list[bytes] = []
        """Messages after `waiting` that are left to the next micro-batch."""
        self.under_way: UnderWay | None = None
        """A call that has left its micro-batch; all messages wait for its result."""
        self.lost = 0
        """How often the process of such a call has ended before it had answered, in a row."""
        self._overflowed_in = _NEVER
        """The newest micro-batch that had no room for all immediate messages of the address."""
        self._expiries: dict[str, int] = {}
        self._wake = 0
        if not stored:
            return
        try:
            state = AddressState.FromString(stored)
        except DecodeError as error:
            raise CheckpointError(
                f"a stored state of {len(stored)} bytes is damaged ({error}); restore the "
                "checkpoint from a copy"
            ) from error
        if state.HasField("crowded"):
            self._overflowed_in = state.crowded
        for value in state.values:
            self.values[value.name] = _make_value((value.typename, value.value))
        self.waiting_until = state.waiting_until
        if state.waiting_until or state.waiting or state.lost or state.HasField("stored"):
            self._read_waiting(state)
        if state.HasField("trouble"):
            self.trouble = _trouble_of(state.trouble)
        if state.wake:  # as long as a value may expire, or messages wait
            self._wake = state.wake
            self._expiries = {value.name: value.expires for value in state.values if value.expires}

    def _read_waiting(self, state: AddressState) -> None:
        """Read the messages that wait out of a stored state."""
        self.waiting = list(state.waiting)
        self.waiting_size = sum(map(len, self.waiting))
        self.under_way = UnderWay.of(state)
        self.lost = state.lost
        if state.HasField("stored"):
            numbers = state.stored
            self.chunks = Chunks(numbers.first, numbers.asked, numbers.end, numbers.size)

    def apply(self, mutations: Mapping[str, TypedValue | None]) -> None:
        """Apply the assignments and deletions of an invocation."""
        values = self.values
        for name, value in mutations.items():
            if self._expiries and self._expiries.pop(name, 0):
                self.changed = True
            if values.get(name) == value:
                continue
            self.changed = True
            if value is None:
                del values[name]
            else:
                values[name] = value

    def begin(self, delivered_up_to: int | None, clock: Clock) -> None:
        """Drop expired values, and a limit that was reached; ``delivered_up_to`` as for :meth:`has_room`."""
        if delivered_up_to is not None and _NEVER < self._overflowed_in <= delivered_up_to:
            self._overflowed_in = _NEVER
            self.changed = True
        self.expire(clock)

    def has_room(self, batch: int, delivered_up_to: int | None, limit: int) -> bool:
        """Return whether a function without state may be messaged within this micro-batch.

        After the limit is reached, no further message may be delivered so until all other messages of
        that micro-batch are delivered; else the order per sender and target would break.

        Args:
            batch: this micro-batch.
            delivered_up_to: the newest micro-batch up to which all messages were delivered before this
                micro-batch; None while there are messages of an earlier run.
            limit: how many messages of an address may be delivered within the micro-batch.
        """
        is_free = delivered_up_to is not None and self._overflowed_in <= delivered_up_to
        if is_free and self.immediate_count < limit:
            return True
        self.changed = self.changed or self._overflowed_in != batch
        self._overflowed_in = batch
        return False

    def expire(self, clock: Clock) -> None:
        """Delete the values that have expired; none expires while a call that has left goes on with it."""
        if not self._expiries or self.under_way is not None:
            return
        now = clock.now()
        for name in [name for name, time in self._expiries.items() if time <= now]:
            del self.values[name], self._expiries[name]
            self.changed = True

    def renew(self, expirations: Iterable[Expiration], written: Collection[str], now: int) -> None:
        """Renew the expiration of values: written ones, and ones that expire after a call."""
        for name, after, on_call in expirations:
            if name in self.values and (on_call or name in written):
                self._expiries[name] = now + in_milliseconds(after)
                self.changed = True

    def wait(self, messages: Iterable[bytes], until: int) -> None:
        """Add messages, each a serialized ``Retry``, to the waiting ones, and set when to call again."""
        for message in messages:
            self.waiting.append(message)
            self.waiting_size += len(message)
        self.waiting_until = until
        self.changed = True

    def remember(self, trouble: Trouble) -> None:
        """Store the trouble with calls of the address."""
        if trouble != self.trouble:
            self.trouble = trouble
            self.changed = True

    def keep_waiting(self, messages: list[bytes]) -> None:
        """Replace the waiting messages."""
        self.waiting, self.waiting_size = messages, sum(map(len, messages))
        self.changed = True

    def take_waiting(self) -> list[bytes]:
        """Remove the waiting messages and return them."""
        messages = self.waiting
        if messages:
            self.waiting, self.waiting_size, self.waiting_until = [], 0, 0
            self.changed = True
        return messages

    def end_call(self) -> Sequence[bytes]:
        """Return the messages of the call that has left its micro-batch, which is over now."""
        if self.under_way is None:
            raise AssertionError("no call is under way")
        messages, self.under_way = self.under_way.messages, None
        self.changed = True
        return messages

    def call_again(self) -> None:
        """Let the messages of the call that has left wait for another call, before all others."""
        self.keep_waiting([*self.end_call(), *self.waiting])
        self.waiting_until = 0

    def count_lost(self, lost: int) -> None:
        """Set how often the process of the address's call has ended before it had answered, in a row."""
        self.changed = self.changed or lost != self.lost
        self.lost = lost

    def wake_up(self, due: int) -> None:
        """Record that the wake-up with the due time ``due`` has come."""
        if self.waiting_until <= due and not self.is_held_back:
            # Messages of an address that was held back in this micro-batch need another wake-up.
            self.waiting_until = 0
        if self._wake == due:
            self._wake = 0
            self.changed = True

    def next_wake_up(self, now: int) -> int | None:
        """Return the due time of a wake-up that is needed and not sent yet; record it as sent.

        The due time is rounded up, so that many addresses wake up together. A value that has expired is
        deleted only then, and no function sees it meanwhile.
        """
        expiries = () if self.under_way is not None else self._expiries.values()
        first = min(expiries, default=None)
        if self.waiting_until and (first is None or self.waiting_until < first):
            first = self.waiting_until
        if first is None:
            return None
        first = rounded_up(first, now)
        if 0 < self._wake <= first:
            return None
        self._wake = first
        self.changed = True
        return first

    def encoded(self) -> bytes | None:
        """Return the state to store; None if there is nothing to store."""
        waits = bool(self.waiting or self.chunks or self.under_way)
        if not (self.values or waits) and self._overflowed_in == _NEVER:
            return None
        state = AddressState(wake=self._wake)
        if waits:
            state.waiting.extend(self.waiting)
            state.waiting_until = self.waiting_until
            state.lost = self.lost
        if self.under_way is not None:
            self.under_way.put(state)
        if self.chunks:
            numbers = state.stored
            numbers.first, numbers.asked, numbers.end, numbers.size = attrs.astuple(self.chunks)
        if self.trouble != NO_TROUBLE:
            _put_trouble(state.trouble, self.trouble)
        if self._overflowed_in != _NEVER:
            state.crowded = self._overflowed_in
        expiries = self._expiries
        for name, (typename, value) in self.values.items():
            entry = state.values.add(name=name, typename=typename, value=value)
            if name in expiries:
                entry.expires = expiries[name]
        return state.SerializeToString()


def _trouble_of(stored: AddressState.Trouble) -> Trouble:
    spent = timedelta(milliseconds=stored.spent)
    return Trouble(stored.outages, stored.alone, stored.attempts, spent, stored.most)


def _put_trouble(stored: AddressState.Trouble, trouble: Trouble) -> None:
    stored.outages, stored.alone, stored.attempts, spent, stored.most = trouble
    stored.spent = in_milliseconds(spent)
