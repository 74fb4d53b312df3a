# SPDX-License-Identifier: Apache-2.0
"""Repairs: messages that set and delete values of an address, and call no function."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from micro_batches import KEY, START, SetClock

from statefun import Context, IntType, Message, StatefulFunctions, ValueSpec
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import DELAYED
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.engine.repairs import DELETE, SET
from statefun.protocol.runtime_pb2 import AddressState, Retry

INT = IntType.typename
Typed = tuple[str, bytes]


def number(value: int) -> bytes:
    """Return a stored number."""
    return IntType.serializer().serialize(value)


def setting(name: str, value: int, expires: int = 0) -> Typed:
    """Return a repair that sets a value."""
    stored = AddressState.Value(name=name, typename=INT, value=number(value), expires=expires)
    return SET, stored.SerializeToString()


def dispatched(
    messages: Sequence[Typed], stored: AddressState | None = None, *, knows: bool = False
) -> tuple[AddressState, Effects, int]:
    """Handle messages to an address; return its state, the effects, and how many messages a function has handled."""
    functions = StatefulFunctions()
    if knows:

        @functions.bind("t/f", [ValueSpec("count", IntType)])
        def count(ctx: Context, message: Message) -> None:
            ctx.storage.count = (ctx.storage.count or 0) * 10 + message.as_int()

    clock = BatchClock(SetClock(), START)
    dispatcher = Dispatcher(
        Program(functions, {}), clock, batch=1, delivered_up_to=None, concurrency=1, immediate=10
    )
    rows = len(messages)
    typenames, values = zip(*messages, strict=True)
    columns = Columns(
        [None] * rows, typenames, values, [None] * rows, [0] * rows, cell=lambda *_: None
    )
    state = AddressValues(None if stored is None else stored.SerializeToString())
    effects = Effects()
    (group,) = dispatcher.dispatch([Group(KEY, columns, 0, rows, state, True)], effects)
    encoded = group.values.encoded() or b""
    return AddressState.FromString(encoded), effects, dispatcher.summary().invocations


def numbers(state: AddressState) -> dict[str, int]:
    """Return the values of a state."""
    return {each.name: IntType.serializer().deserialize(each.value) for each in state.values}


names = st.sampled_from(["a", "b", "c"])
changes = st.lists(st.tuples(names, st.none() | st.integers(0, 9)), min_size=1)


@given(st.dictionaries(names, st.integers(10, 19)), changes)
def test_the_values_are_those_of_a_dictionary(
    before: dict[str, int], made: list[tuple[str, int | None]]
) -> None:
    """Changes are made in order; to delete what is not there does nothing."""
    stored = AddressState()
    for name, value in before.items():
        stored.values.add(name=name, typename=INT, value=number(value))
    expected = dict(before)
    for name, assigned in made:
        expected.pop(name, None)
        if assigned is not None:
            expected[name] = assigned

    state, effects, handled = dispatched(
        [
            (DELETE, name.encode()) if value is None else setting(name, value)
            for name, value in made
        ],
        stored,
    )

    assert numbers(state) == expected
    assert (bool(effects), handled) == (False, 0)


def test_repairs_come_before_all_messages_of_the_batch() -> None:
    """Wherever their rows are."""
    state, _, handled = dispatched(
        [(INT, number(1)), setting("count", 7), (INT, number(2))], knows=True
    )

    assert numbers(state) == {"count": 712}
    assert handled == 2


def test_what_an_address_waits_for_stays() -> None:
    """Messages that wait, a long call, and the trouble of an endpoint are those of the next run."""
    stored = AddressState(waiting_until=START + 5, lost=1, wake=[START + 9])
    stored.values.add(name="a", typename=INT, value=number(1), expires=START + 99)
    stored.waiting.append(Retry(typename=INT, value=number(5)).SerializeToString())
    stored.under_way.attempt, stored.under_way.since = "1", START
    stored.under_way.messages.append(Retry(typename=INT, value=number(4)).SerializeToString())
    expected = AddressState.FromString(stored.SerializeToString())
    expected.values.add(name="b", typename=INT, value=number(2))

    state, effects, _ = dispatched([setting("b", 2)], stored)

    assert state == expected
    assert not effects


def test_a_value_that_expires_gets_a_wake_up() -> None:
    """Its address deletes it later, although no function is called."""
    expires = START + 50_000

    state, effects, _ = dispatched([setting("a", 1, expires)])

    assert [each.expires for each in state.values] == [expires]
    assert state.wake[0] >= expires
    assert [typename for piece in effects.messages.take() for typename in piece[2]] == [DELAYED]


def test_setting_a_value_again_keeps_or_removes_its_expiry() -> None:
    """The repair says when the value expires, whatever was before."""
    later = START + round(timedelta(days=1).total_seconds() * 1000)
    first, _, _ = dispatched([setting("a", 1, later)])

    kept, _, _ = dispatched([setting("a", 1, later)], first)
    removed, _, _ = dispatched([setting("a", 1)], first)

    assert [each.expires for each in kept.values] == [later]
    assert [each.expires for each in removed.values] == [0]
