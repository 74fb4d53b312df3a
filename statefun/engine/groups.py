# SPDX-License-Identifier: Apache-2.0
"""The messages and the state of one address, in the form that dispatching uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import attrs
from google.protobuf.message import DecodeError

from statefun.engine.address_keys import address_of
from statefun.engine.clock import Clock
from statefun.engine.origin import headers_of, original
from statefun.engine.row_flags import ENCODED, KEYLESS, REPLAYED
from statefun.engine.wheel import rounded_up
from statefun.protocol.runtime_pb2 import AddressState, RecordOrigin
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError
from statefun.sdk.invocation_batch import NO_TROUBLE, Invocation, Trouble
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

OWN_PREFIX = "statefun."
"""The typename prefix of the runtime's own messages."""

_NEVER = -2
_make_value = partial(tuple.__new__, TypedValue)
_make_invocation = partial(tuple.__new__, Invocation)


class Row(NamedTuple):
    """A message, as a row of ``MESSAGE_SCHEMA``."""

    target: bytes
    caller: bytes
    typename: str
    value: bytes
    trace: str | None = None


COLUMNS = ("caller", "typename", "value", "trace", "flags")
"""The columns that are read for every row."""


class Columns:
    """Rows of ``envelope.ROW_SCHEMA``, column by column.

    Args:
        caller: the keys of the addresses that have sent the messages; None for records.
        typename: the typenames of the values.
        value: the values; None for a record without a value, which no function gets.
        trace: the trace-context headers, or None.
        flags: bits of ``row_flags``.
        cell: looks up a row in one of the other columns.
    """

    def __init__(  # noqa: PLR0913 - a row has so many
        self,
        caller: Sequence[bytes | None],
        typename: Sequence[str],
        value: Sequence[bytes],
        trace: Sequence[str | None],
        flags: Sequence[int],
        *,
        cell: Callable[[str, int], Any],
    ) -> None:
        self.caller = caller
        self.typename = typename
        self.value = value
        self.trace = trace
        self.flags = flags
        self.cell = cell
        self._invocations: list[Invocation] | None = None
        self.has_own = any(name.startswith(OWN_PREFIX) for name in set(typename))
        """Whether one of the rows is a message of the runtime itself."""
        self.has_encoded = any(flag & ENCODED for flag in set(flags))
        """Whether one of the rows is a record whose value is not decoded yet."""

    def invocations(self) -> list[Invocation]:
        """Return the messages of all rows.

        All are made at once, by functions of C: a loop in Python would take several times as long.
        """
        if self._invocations is None:
            self._invocations = self._new_invocations()
        return self._invocations

    def _new_invocations(self) -> list[Invocation]:
        callers: Iterable[Address | None] = repeat(None, len(self.caller))
        if any(self.caller):
            callers = [address_of(key) if key else None for key in self.caller]
        arguments = map(_make_value, zip(self.typename, self.value, strict=True))
        return [*map(_make_invocation, zip(callers, arguments, self.trace, strict=True))]

    def is_encoded(self, row: int) -> bool:
        """Return whether a row is a record whose value is not decoded yet."""
        return bool(self.flags[row] & ENCODED)

    def record(self, row: int) -> RecordOrigin | None:
        """Return the origin of a row that is an ingress record; None for other rows."""
        topic = self.cell("topic", row)
        if topic is None:
            return None
        # pandas turns a column of integers that has nulls into one of floats.
        origin = RecordOrigin(
            topic=topic,
            partition=int(self.cell("partition", row)),
            offset=int(self.cell("offset", row)),
            timestamp=int(self.cell("timestamp", row)),
            route=int(self.cell("route", row)),
            keyless=bool(self.flags[row] & KEYLESS),
        )
        for name, content in headers_of(self.cell("headers", row)):
            origin.headers.add(key=name, value=content)
        key = self.cell("key", row)
        if key is not None:
            origin.key = bytes(key)
        return original(origin) if self.flags[row] & REPLAYED else origin


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
        "trouble",
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
        self.waiting_size = 0
        """Approximate size of ``waiting``, in bytes."""
        self.waiting_until = 0
        """When to call again, in milliseconds since the epoch; 0 for now."""
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
        if state.waiting:
            self.waiting = list(state.waiting)
            self.waiting_size = sum(map(len, self.waiting))
        self.waiting_until = state.waiting_until
        if state.HasField("stored"):
            numbers = state.stored
            self.chunks = Chunks(numbers.first, numbers.asked, numbers.end, numbers.size)
        if state.HasField("trouble"):
            self.trouble = _trouble_of(state.trouble)
        if state.wake:  # as long as a value may expire, or messages wait
            self._wake = state.wake
            self._expiries = {value.name: value.expires for value in state.values if value.expires}

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
        """Delete the values that have expired."""
        if not self._expiries:
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
        first = min(self._expiries.values(), default=None)
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
        waits = bool(self.waiting or self.chunks)
        if not (self.values or waits) and self._overflowed_in == _NEVER:
            return None
        state = AddressState(wake=self._wake)
        if waits:
            state.waiting.extend(self.waiting)
            state.waiting_until = self.waiting_until
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


class Group(NamedTuple):
    """The messages of one address, and its state."""

    key: bytes
    columns: Columns
    start: int
    """The first of its rows in ``columns``."""
    end: int
    """The row after its last one."""
    values: AddressValues
    last: bool = True
    """Whether these are the address's last rows in this micro-batch."""
