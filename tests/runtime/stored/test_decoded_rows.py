# SPDX-License-Identifier: Apache-2.0
"""The values of many addresses as columns."""

from __future__ import annotations

from statefun import IntType
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.stored.decoded_rows import decoded_states
from statefun.runtime.stored.known_values import Secrets
from statefun.sdk.encoding import typed


def state(**values: int) -> bytes:
    """Return a stored state with whole numbers."""
    stored = AddressState()
    for name, value in values.items():
        typename, content = typed(value, IntType)
        stored.values.add(name=name, typename=typename, value=content)
    return stored.SerializeToString()


def test_a_renamed_value_is_in_the_column_of_its_present_name() -> None:
    """Addresses whose function was not called since then still have it under a former name."""
    states = [state(now=1), state(was=2), state(other=3)]

    rows = decoded_states({"now": ("now", IntType)}, states, {"was": "now"}, Secrets()).to_pylist()

    assert [row["now"] for row in rows] == [1, 2, None]
    assert [row["undecoded"] and row["undecoded"][0][0] for row in rows] == [None, None, "other"]


def test_secret_values_are_left_out() -> None:
    """By their name and by their type, whether they have a column or not."""
    rows = decoded_states(
        {"now": ("now", IntType)}, [state(now=1, pin=1234)], {}, Secrets(frozenset({"pin"}))
    ).to_pylist()
    assert rows == [{"now": 1, "undecoded": None}]

    hidden = Secrets(types=frozenset({IntType.typename}))
    rows = decoded_states({"now": ("now", IntType)}, [state(now=1, pin=1)], {}, hidden).to_pylist()
    assert rows == [{"now": None, "undecoded": None}]
