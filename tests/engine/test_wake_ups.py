# SPDX-License-Identifier: Apache-2.0
"""The wake-ups of addresses: each comes in time, and none is sent twice."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from datetime import timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from micro_batches import SetClock

from statefun import Context, IntType, Message, StatefulFunctions, ValueSpec, message_builder
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.delays import WAKE_UP
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.engine.wheel import rounded_up
from statefun.protocol.runtime_pb2 import AddressState
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

START = 1_800_000_000_000
VALUE = TypedValue("t/v", b"1")
MINUTE, MONTH = timedelta(minutes=1), timedelta(days=30)


@attrs.define
class WokenAddress:
    """An address with values that expire, and the wake-ups on their way to it."""

    expirations: Sequence[Expiration]
    now: int = START
    stored: bytes | None = None
    under_way: list[int] = attrs.field(factory=list)
    """The due times of the wake-ups, the earliest one first."""
    sent: int = 0

    def pass_time(self, until: int) -> None:
        """Let the address get the wake-ups that are due until a time."""
        while self.under_way and self.under_way[0] <= until:
            self.now = max(self.now, self.under_way[0])
            self._handle(None, 0)
        self.now = max(self.now, until)

    def call(self, written: Collection[str], rest: int = 0) -> None:
        """Let the function write some values; or let its message wait for so many milliseconds."""
        self._handle(written, rest)

    @property
    def state(self) -> AddressState:
        """The stored state."""
        return AddressState.FromString(self.stored or b"")

    def _handle(self, written: Collection[str] | None, rest: int) -> None:
        values = AddressValues(self.stored)
        while self.under_way and self.under_way[0] <= self.now:
            values.wake_up(heapq.heappop(self.under_way))
        values.begin(1, None, SetClock(self.now))
        if not values.waiting_until:
            values.take_waiting()
            if rest:
                values.wait([b"message"], self.now + rest)
            elif written is not None:
                values.apply({"kept": VALUE} | dict.fromkeys(written, VALUE))
                values.renew(self.expirations, written, self.now)
        due = values.next_wake_up(self.now)
        if due is not None:
            heapq.heappush(self.under_way, due)
            self.sent += 1
        self.stored = values.encoded()


LIFETIMES = st.timedeltas(timedelta(seconds=1), timedelta(days=60))
EXPIRATIONS = st.lists(st.tuples(LIFETIMES, st.booleans()), min_size=1, max_size=3).map(
    lambda pairs: [
        Expiration(str(number), lifetime, on_call=on_call)
        for number, (lifetime, on_call) in enumerate(pairs)
    ]
)
WAITS = st.one_of([st.integers(0, 10**exponent) for exponent in range(3, 10)])
CALLS = st.lists(
    st.tuples(WAITS, st.sets(st.sampled_from("012")), st.just(0) | st.integers(1, 10**6)),
    max_size=40,
)


@given(EXPIRATIONS, CALLS)
def test_what_needs_a_wake_up_has_one_and_none_comes_twice(
    expirations: Sequence[Expiration], calls: Sequence[tuple[int, set[str], int]]
) -> None:
    """The state knows all wake-ups on their way, whose due times differ, and which are few."""
    address = WokenAddress(expirations)
    names = {each.name for each in expirations}
    steps = [(each.after // MINUTE).bit_length() + 2 for each in expirations]

    for wait, written, rest in calls:
        address.pass_time(address.now + wait)
        address.call(written & names, rest)

        state, first = address.state, min(address.under_way, default=None)
        assert [*state.wake] == sorted(set(address.under_way), reverse=True)
        assert len(state.wake) == len(address.under_way) <= sum(steps) + 1
        for time in [each.expires for each in state.values if each.expires] + [state.waiting_until]:
            assert not time or (first is not None and first <= rounded_up(time, address.now))
    address.pass_time(address.now + 2 * in_milliseconds(timedelta(days=90)))

    assert not address.under_way
    assert {each.name for each in address.state.values} <= {"kept"}


@pytest.mark.parametrize("on_call", [True, False])
def test_a_short_life_does_not_repeat_the_wake_up_of_a_long_one(*, on_call: bool) -> None:
    """Each wake-up of the short one leaves that of the long one on its way."""
    expirations = [
        Expiration("long", MONTH, on_call=on_call),
        Expiration("short", MINUTE, on_call=False),
    ]
    address = WokenAddress(expirations)
    address.call({"long", "short"})
    calls = 720

    for _ in range(calls):
        address.pass_time(address.now + 2 * in_milliseconds(MINUTE))
        address.call({"short"})

    assert len(address.under_way) == 2
    assert address.sent <= calls + 2


def test_rests_of_an_endpoint_do_not_repeat_the_wake_up_of_a_value() -> None:
    """Each rest has a wake-up of its own, which comes before that of the value."""
    address = WokenAddress([Expiration("long", MONTH, on_call=False)])
    address.call({"long"})

    for _ in range(100):
        address.call((), rest=in_milliseconds(MINUTE))
        address.pass_time(address.now + 2 * in_milliseconds(MINUTE))

    assert len(address.under_way) == 1
    assert address.sent == 101


def test_addresses_that_wait_for_as_long_wake_up_together() -> None:
    """However many there are, their wake-ups have some hundred due times for each lifetime."""
    lifetimes = [timedelta(days=5), MONTH]
    expirations = [
        Expiration(str(each), each, on_call=bool(number)) for number, each in enumerate(lifetimes)
    ]
    count = 3000
    addresses = [
        WokenAddress(expirations, START + number * in_milliseconds(MONTH) // count)
        for number in range(count)
    ]

    for address in addresses:
        address.call({each.name for each in expirations})
    for address in addresses:
        address.pass_time(addresses[-1].now)

    assert max(len(address.under_way) for address in addresses) <= len(lifetimes)
    assert len({due for address in addresses for due in address.under_way}) <= 520 * len(lifetimes)


def test_the_wake_up_of_a_former_version_is_known() -> None:
    """A former version stored the due time of the earliest wake-up alone, in the same form."""
    expiring = AddressState(
        values=[AddressState.Value(name="a", typename="t/v", value=b"1", expires=7)]
    )
    former = expiring.SerializeToString() + b"\x10\x09"
    values = AddressValues(former)

    assert values.next_wake_up(0) is None
    assert values.encoded() == former
    values.wake_up(9)
    assert values.next_wake_up(0) == 250


def passing_on() -> StatefulFunctions:
    """Return a function that sends messages to one without state, and leaves none itself."""
    functions = StatefulFunctions()

    @functions.bind("t/f", specs=[ValueSpec("seen", IntType)])
    def pass_on(ctx: Context, _message: Message) -> None:
        del ctx.storage.seen
        for number in range(3):
            ctx.send(message_builder("t/plain", "x", int_value=number))

    functions.bind("t/plain")(lambda _ctx, _message: None)
    return functions


def dispatched(
    typename: str,
    stored: bytes | None,
    *,
    batch: int,
    delivered_up_to: int | None,
    immediate: int = 2,
) -> tuple[bytes | None, bool]:
    """Handle a message to an address; return its state, and whether it has sent a bucket anything."""
    value = b"%d" % max(AddressState.FromString(stored or b"").wake, default=1)
    dispatcher = Dispatcher(
        Program(passing_on(), {}),
        BatchClock(SetClock(), START),
        batch=batch,
        delivered_up_to=delivered_up_to,
        concurrency=1,
        immediate=immediate,
    )
    effects, columns = (
        Effects(),
        Columns([None], [typename], [value], [None], [0], cell=lambda *_: None),
    )
    group = Group(b"Ada\0t/f", columns, 0, 1, AddressValues(stored))
    [group] = dispatcher.dispatch([group], effects)
    return group.values.encoded(), bool(effects.buckets)


def test_an_address_that_has_sent_too_much_leaves_nothing() -> None:
    """A wake-up removes its state after the delivery of its messages, although it gets no message."""
    sent, asks = dispatched("t/v", None, batch=5, delivered_up_to=4)
    early, asks_again = dispatched(WAKE_UP, sent, batch=6, delivered_up_to=4)
    late, asks_in_vain = dispatched(WAKE_UP, early, batch=8, delivered_up_to=6)

    assert (sent is not None, early is not None, late) == (True, True, None)
    assert (asks, asks_again, asks_in_vain) == (True, True, False)


def test_an_address_does_the_same_after_a_restart() -> None:
    """While messages of an earlier run are on their way, none is immediate."""
    sent, asks = dispatched("t/v", None, batch=5, delivered_up_to=None)
    again, asks_twice = dispatched("t/v", sent, batch=6, delivered_up_to=None)
    late, _ = dispatched(WAKE_UP, again, batch=8, delivered_up_to=6)

    assert (asks, asks_twice) == (True, False)
    assert late is None


def test_an_application_without_immediate_messages_stores_nothing_for_them() -> None:
    """All of its messages go through the outbox, in order."""
    assert dispatched("t/v", None, batch=5, delivered_up_to=4, immediate=0) == (None, False)
