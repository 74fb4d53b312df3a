# SPDX-License-Identifier: Apache-2.0
"""The state of one address while a task handles its messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from statefun.engine.clock import Clock
from statefun.engine.plain_states import encoded_values, read_values
from statefun.engine.row import Row
from statefun.engine.troubles import put_trouble, read_trouble
from statefun.engine.under_way import UnderWay
from statefun.engine.wheel import rounded_up
from statefun.protocol.runtime_pb2 import AddressState
from statefun.sdk.errors import CheckpointError, caused
from statefun.sdk.invocation_batch import NO_TROUBLE, Trouble
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

_NEVER: Final = -2
_DELIVERY: Final = in_milliseconds(timedelta(hours=1))
"""After this time messages in the outbox are delivered in almost all cases, also those that wait at their targets; see
``is_only_crowded``."""
_NO_EXPIRIES: Final[dict[str, int]] = {}
"""For addresses whose values do not expire; it stays empty."""
_make_value: Final = partial(tuple.__new__, TypedValue)


class Chunks:
    """The numbers of the chunks with further waiting messages of an address; see the module ``chunks``."""

    first: int = 0
    """The number of the first chunk that still holds messages: earlier chunks have returned their messages."""
    asked: int = 0
    """The number of the first chunk whose messages the address has not asked for yet."""
    end: int = 0
    """One more than the number of the last chunk."""
    size: int = 0
    """Bytes of the messages in the last chunk."""

    def __bool__(self) -> bool:
        return self.first < self.end


class AddressValues:
    """The state of one address while its messages are dispatched, and its immediate messages."""

    # Most addresses never set these attributes, so that each object gets them from its class.
    immediate: deque[Row] | None = None
    """Messages that the address has sent and that are delivered in the same micro-batch; None for none."""
    changed: bool = False
    """Whether the state differs from the stored one, so that it has to be stored again."""
    immediate_count: int = 0
    """How many immediate messages the address has sent in this micro-batch until now."""
    is_held_back: bool = False
    """Whether the address is not called again in this micro-batch, as messages of it have to wait."""
    is_not_admitted: bool = False
    """Whether messages that the address has sent itself wait until the function's transport admits a call."""
    waiting_size: int = 0
    """Approximate size of ``waiting``, in bytes."""
    waiting_until: int = 0
    """When the waiting messages may be handled, in milliseconds since the epoch; 0 for now."""
    under_way: UnderWay | None = None
    """The call that has left its micro-batch, if any; all messages of the address wait for its result."""
    lost: int = 0
    """How many times in a row the process of a long call of the address has ended during the call."""
    held: int | None = None
    """The event time at which the waiting messages hold the watermark; None if they do not hold it."""
    _overflowed_in: int = _NEVER
    """The newest micro-batch in which a message could not be immediate, and went through the outbox.

    ``_NEVER`` if the outbox has delivered all such messages."""
    _expiries: dict[str, int] = _NO_EXPIRIES
    """When values expire, by name, in milliseconds since the epoch."""
    _wake_ups: tuple[int, ...] = ()
    """The due times of the wake-ups that are on their way, the earliest one last."""

    def __init__(self, stored: bytes | None) -> None:
        self.values: dict[str, TypedValue] = {}
        """The current values by name."""
        self.waiting: list[bytes] = []
        """The first messages that wait until the function can be called; each is a serialized ``Retry``."""
        self.chunks = Chunks()
        """The chunks with the waiting messages that come after ``waiting``."""
        self.trouble = NO_TROUBLE
        """The failed attempts to call the address, if its function is behind an endpoint."""
        self.later: list[bytes] = []
        """Messages for the next micro-batch, which come after the messages in ``waiting``."""
        if stored and not read_values(stored, self.values):
            self._read(stored)

    def _read(self, stored: bytes) -> None:
        """Read a stored state with other parts than values, such as expirations or waiting messages."""
        try:
            state = AddressState.FromString(stored)
        except DecodeError as error:
            text = (
                f"a stored state of {len(stored)} bytes is damaged ({error}); restore the "
                "checkpoint from a copy"
            )
            raise caused(CheckpointError(text), error) from error
        if state.HasField("crowded"):
            self._overflowed_in = state.crowded
        self.values = {
            value.name: _make_value((value.typename, value.value)) for value in state.values
        }
        self.waiting_until = state.waiting_until
        if (
            state.waiting_until
            or state.waiting
            or state.lost
            or state.HasField("stored")
            or state.HasField("under_way")
            or state.HasField("held")
        ):
            self._read_waiting(state)
        if state.HasField("trouble"):
            self.trouble = read_trouble(state.trouble)
        self._wake_ups = tuple(state.wake)
        if self._wake_ups or self.under_way is not None:  # else no value expires
            self._expiries = {value.name: value.expires for value in state.values if value.expires}

    def _read_waiting(self, state: AddressState) -> None:
        """Read the waiting messages, the numbers of chunks and the call under way from a stored state."""
        self.waiting = list(state.waiting)
        self.waiting_size = sum(map(len, self.waiting))
        self.under_way = UnderWay.of(state)
        self.lost = state.lost
        if state.HasField("held"):
            self.held = state.held
        if state.HasField("stored"):
            numbers = state.stored
            chunks = self.chunks
            chunks.first, chunks.asked = numbers.first, numbers.asked
            chunks.end, chunks.size = numbers.end, numbers.size

    def apply(self, mutations: Mapping[str, TypedValue | None]) -> None:
        """Apply the assignments and deletions of values by an invocation batch."""
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

    def put(self, name: str, value: TypedValue, expires: int) -> None:
        """Set a value, and when it expires, in milliseconds since the epoch; 0 for never."""
        self.apply({name: value})
        if expires:
            self._expires_at(name, expires)

    def begin(self, batch: int, delivered_up_to: int | None, clock: Clock) -> None:
        """Delete expired values, and allow immediate messages again if no earlier message is in the outbox.

        Args:
            batch: the number of this micro-batch.
            delivered_up_to: as for :meth:`has_room`.
            clock: the present time.
        """
        # A larger number than that of this micro-batch is of the checkpoint from which the state was imported.
        if self._overflowed_in != _NEVER and (
            self._overflowed_in > batch
            or (delivered_up_to is not None and self._overflowed_in <= delivered_up_to)
        ):
            self._overflowed_in = _NEVER
            self.changed = True
        self.expire(clock)

    def has_room(self, batch: int, delivered_up_to: int | None, limit: int) -> bool:
        """Return whether a message to a plain function without state may be delivered in this micro-batch.

        A plain function is no coroutine function, and not behind an endpoint. If the message may not be
        delivered now, it goes through the outbox. Then all later messages of the address to such functions
        do the same, until the outbox has delivered all messages of this micro-batch: otherwise a later
        message could overtake an earlier one of the same sender to the same target.

        Args:
            batch: the number of this micro-batch.
            delivered_up_to: all messages of micro-batches up to this one were delivered before the present
                micro-batch; None while messages of an earlier run are on their way.
            limit: how many messages of one address may be immediate in a micro-batch.
        """
        if not limit:  # all messages of all addresses go through the outbox
            return False
        is_free = delivered_up_to is not None and self._overflowed_in <= delivered_up_to
        if is_free and self.immediate_count < limit:
            return True
        self.changed = self.changed or self._overflowed_in != batch
        self._overflowed_in = batch
        return False

    def expire(self, clock: Clock) -> None:
        """Delete the expired values, unless a long call of the address still uses them."""
        if not self._expiries or self.under_way is not None:
            return
        now = clock.now()
        for name in [name for name, time in self._expiries.items() if time <= now]:
            del self.values[name], self._expiries[name]
            self.changed = True

    def renew(self, expirations: Iterable[Expiration], written: Collection[str], now: int) -> None:
        """Set new times of expiration after an invocation batch.

        Args:
            expirations: which values expire, after which time, and whether each call renews that time.
            written: the names of the values that the batch has written.
            now: the present time, in milliseconds since the epoch.
        """
        for name, after, on_call in expirations:
            if name in self.values and (on_call or name in written):
                self._expires_at(name, now + in_milliseconds(after))

    def _expires_at(self, name: str, time: int) -> None:
        if not self._expiries:
            self._expiries = {}
        self._expiries[name] = time
        self.changed = True

    def wait(self, messages: Iterable[bytes], until: int) -> None:
        """Add messages after the waiting ones, and set when the function may be called again.

        Args:
            messages: the messages, each a serialized ``Retry``.
            until: when the function may be called, in milliseconds since the epoch; 0 for now.
        """
        for message in messages:
            self.waiting.append(message)
            self.waiting_size += len(message)
        self.waiting_until = until
        self.changed = True

    def remember(self, trouble: Trouble) -> None:
        """Store the failed attempts to call the address, so that its next call knows of them."""
        if trouble != self.trouble:
            self.trouble = trouble
            self.changed = True

    def keep_waiting(self, messages: list[bytes]) -> None:
        """Keep ``messages`` as the waiting messages, in place of the present ones."""
        self.waiting, self.waiting_size = messages, sum(map(len, messages))
        self.changed = True

    def take_waiting(self) -> list[bytes]:
        """Remove the waiting messages from the state and return them."""
        messages = self.waiting
        if messages:
            self.waiting, self.waiting_size, self.waiting_until = [], 0, 0
            self.changed = True
        return messages

    @property
    def waits(self) -> bool:
        """Whether messages of the address wait, also those of its long call."""
        return bool(self.waiting or self.chunks or self.under_way)

    @property
    def is_only_crowded(self) -> bool:
        """Whether the state is only kept until the outbox has delivered messages that were not immediate."""
        return self._overflowed_in != _NEVER and not (self.values or self.waits)

    def hold(self, event_time: int | None) -> None:
        """Set the event time at which the waiting messages hold the watermark; None if they do not hold it."""
        self.changed = self.changed or event_time != self.held
        self.held = event_time

    def end_call(self) -> UnderWay:
        """Remove the long call from the state, as the call is over, and return it."""
        if self.under_way is None:
            raise AssertionError("the address has no long call")
        call, self.under_way = self.under_way, None
        self.changed = True
        return call

    def call_again(self) -> None:
        """Put the messages of the long call before the waiting ones, so that the call is made again."""
        self.keep_waiting([*self.end_call().messages, *self.waiting])
        self.waiting_until = 0

    def count_lost(self, lost: int) -> None:
        """Set how many times in a row the process of the address's long call has ended before the call did."""
        self.changed = self.changed or lost != self.lost
        self.lost = lost

    def wake_up(self, due: int) -> None:
        """Record that the address has received the wake-up with the due time ``due``."""
        if self.waiting_until <= due and not self.is_held_back:
            # Messages of an address that was held back in this micro-batch need another wake-up.
            self.waiting_until = 0
        if due in self._wake_ups:
            self._wake_ups = tuple(each for each in self._wake_ups if each != due)
            self.changed = True

    def next_wake_up(self, now: int) -> int | None:
        """Return when the address needs its next wake-up, and record that wake-up as sent.

        The result is None if it needs none, or if one that comes early enough is on its way. The due time is
        rounded up, so that many addresses wake up together. A value that has expired is deleted only at the
        wake-up, but no function sees the value before that.
        """
        expiries = () if self.under_way is not None else self._expiries.values()
        first = min(expiries, default=None)
        if self.waiting_until and (first is None or self.waiting_until < first):
            first = self.waiting_until
        if self.is_only_crowded:  # the wake-up removes the state
            first = now + _DELIVERY
        if first is None:
            return None
        first = rounded_up(first, now)
        if self._wake_ups and self._wake_ups[-1] <= first:
            return None
        self._wake_ups = (*self._wake_ups, first)
        self.changed = True
        return first

    def encoded(self) -> bytes | None:
        """Return the state in its stored form; None if there is nothing to store."""
        waits = self.waits
        if not waits and self._overflowed_in == _NEVER:
            if not self.values:
                return None
            if not (self._wake_ups or self._expiries) and self.trouble == NO_TROUBLE:
                return encoded_values(self.values)
        return self._encoded(waits=waits)

    def _encoded(self, *, waits: bool) -> bytes:
        """Return the stored form of a state with other parts than values, such as expirations."""
        chunks = self.chunks
        state = AddressState(wake=self._wake_ups)
        if waits:
            state.waiting.extend(self.waiting)
            state.waiting_until = self.waiting_until
            state.lost = self.lost
            if self.held is not None:
                state.held = self.held
        if self.under_way is not None:
            self.under_way.put(state)
        if chunks:
            numbers = state.stored
            numbers.first, numbers.asked = chunks.first, chunks.asked
            numbers.end, numbers.size = chunks.end, chunks.size
        if self.trouble != NO_TROUBLE:
            put_trouble(state.trouble, self.trouble)
        if self._overflowed_in != _NEVER:
            state.crowded = self._overflowed_in
        expiries = self._expiries
        for name, (typename, value) in self.values.items():
            entry = state.values.add(name=name, typename=typename, value=value)
            if name in expiries:
                entry.expires = expiries[name]
        return state.SerializeToString()
