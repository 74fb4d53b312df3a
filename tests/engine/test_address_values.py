# SPDX-License-Identifier: Apache-2.0
"""The state of an address: what is stored of it, and what is read again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from statefun.engine.address_values import AddressValues
from statefun.sdk.errors import CheckpointError
from statefun.sdk.invocation_batch import Trouble
from statefun.sdk.types import TypedValue

VALUE = TypedValue("t/v", b"1")
TROUBLE = Trouble(2, 1, 3, timedelta(seconds=4), 5)


def again(values: AddressValues) -> AddressValues:
    """Return the values after they were stored and read."""
    return AddressValues(values.encoded())


def test_trouble_and_waiting_messages_are_stored() -> None:
    """They are part of the state until the address has no value and no message."""
    values = AddressValues(None)
    values.wait([b"one", b"two"], 7)
    values.remember(TROUBLE)

    stored = again(values)

    assert (stored.waiting, stored.waiting_size, stored.waiting_until) == ([b"one", b"two"], 6, 7)
    assert stored.trouble == TROUBLE
    assert not stored.changed
    stored.remember(TROUBLE)
    assert not stored.changed
    stored.keep_waiting([b"three"])
    assert (stored.changed, stored.waiting_size) == (True, 5)
    assert stored.take_waiting() == [b"three"]
    assert stored.take_waiting() == []
    assert stored.encoded() is None


def test_a_limit_of_messages_within_a_micro_batch_ends_when_all_are_delivered() -> None:
    """The number of the micro-batch that has reached it is stored, and deleted afterwards."""
    values = AddressValues(None)
    values.immediate_count = 1
    assert not values.has_room(5, 4, 1)

    stored = again(values)
    stored.begin(6, 4, clock := Clock())
    assert not stored.has_room(6, 4, 1)
    values = again(values)
    values.begin(6, 5, clock)

    assert values.changed
    assert values.has_room(6, 5, 1)
    assert values.encoded() is None


def test_a_limit_of_another_checkpoint_ends_at_once() -> None:
    """Its messages were delivered before its states were exported, and its micro-batches had larger numbers."""
    values = AddressValues(None)
    values.immediate_count = 1
    assert not values.has_room(1_000_000, 4, 1)

    imported = again(values)
    imported.begin(1, None, Clock())

    assert imported.encoded() is None


def test_assignments_that_change_nothing_are_not_stored() -> None:
    """An equal value, or the deletion of a value that is not set, is no change."""
    values = AddressValues(None)
    values.apply({"a": VALUE})
    stored = again(values)

    stored.apply({"a": VALUE, "b": None})
    assert not stored.changed
    stored.apply({"a": None})

    assert (stored.changed, stored.values) == (True, {})


def test_a_damaged_state_is_an_error_of_the_checkpoint() -> None:
    """The error has the size of the state, and what to do."""
    with pytest.raises(CheckpointError, match=r"state of 1 bytes is damaged .*; restore the check"):
        AddressValues(b"\xff")


class Clock:
    """A clock that stands still."""

    def now(self) -> int:
        """Return the time."""
        return 0

    def monotonic(self) -> int:
        """Return the same."""
        return 0
