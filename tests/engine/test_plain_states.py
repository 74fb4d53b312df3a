# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefun.engine.address_values import AddressValues
from statefun.engine.plain_states import encoded_values, read_values
from statefun.protocol.runtime_pb2 import AddressState
from statefun.sdk.types import TypedValue

NAMES = st.text(st.characters(codec="utf-8"), max_size=300)
STATES = st.dictionaries(
    NAMES,
    st.builds(TypedValue, NAMES, st.binary(max_size=20) | st.binary(min_size=100)),
    max_size=4,
)


def _by_protobuf(stored: bytes) -> dict[str, TypedValue]:
    state = AddressState.FromString(stored)
    return {each.name: TypedValue(each.typename, each.value) for each in state.values}


@given(STATES)
def test_protobuf_reads_what_is_written_without_it(values: dict[str, TypedValue]) -> None:
    """The stored form of values is one of ``AddressState``, for values of any size."""
    assert _by_protobuf(encoded_values(values)) == values


@given(STATES, st.lists(st.integers(1, 300), max_size=2))
def test_what_protobuf_has_written_is_read(values: dict[str, TypedValue], wake: list[int]) -> None:
    """A state that Protobuf has written is read the same, with the short way or with Protobuf."""
    state = AddressState(wake=wake)
    for name, (typename, value) in values.items():
        state.values.add(name=name, typename=typename, value=value)
    read: dict[str, TypedValue] = {}
    if read_values(state.SerializeToString(), read):
        assert read == values
    assert AddressValues(state.SerializeToString()).values == values


@given(st.binary(max_size=60) | st.builds(bytes.__add__, STATES.map(encoded_values), st.binary()))
def test_damaged_states_are_left_to_protobuf(stored: bytes) -> None:
    """Bytes that are not a state of values alone are not read as one."""
    read: dict[str, TypedValue] = {}
    if read_values(stored, read):
        assert read == _by_protobuf(stored)


def test_usual_states_take_the_short_way() -> None:
    """A state with a usual value, written with or without Protobuf, is read without Protobuf."""
    values = {"visits": TypedValue("io.statefun.types/int", b"\r\7\0\0\0")}
    state = AddressState()
    state.values.add(name="visits", typename="io.statefun.types/int", value=b"\r\7\0\0\0")
    assert encoded_values(values) == state.SerializeToString()
    assert read_values(state.SerializeToString(), {})
