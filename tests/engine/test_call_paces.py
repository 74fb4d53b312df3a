# SPDX-License-Identifier: Apache-2.0
"""How many messages fit into a call, and how long a micro-batch waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from statefun.engine.call_paces import Pace, Paces
from statefun.sdk.bounded_map import MOST_NAMES

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("seconds", "messages", "most"),
    [(0.0, 1, 1_000_000), (0.001, 1000, 1_000_000), (1.0, 10, 10), (5.0, 1, 1), (2.0, 4, 2)],
)
def test_calls_take_as_many_messages_as_fit_into_a_second(
    seconds: float, messages: int, most: int
) -> None:
    """After some calls of a kind, the next one takes what such a call does in a second."""
    pace = Pace()

    for _ in range(50):
        pace.took(seconds, messages, has_left=False)

    assert pace.most == most


def test_a_call_of_a_new_function_takes_all_messages() -> None:
    """Nothing is known of it."""
    assert Paces().of("t/f").most == 1_000_000


def test_one_slow_call_does_not_change_how_long_a_batch_waits() -> None:
    """Most calls of the function answer in time."""
    pace = Pace()

    pace.left()

    assert pace.patience(SECOND) == SECOND


def test_calls_that_mostly_leave_are_not_waited_for() -> None:
    """As soon as they answer in time again, micro-batches wait for them again."""
    pace = Pace()
    for _ in range(4):
        pace.left()
    patience = pace.patience(SECOND)
    for _ in range(4):
        pace.took(0.001, 1, has_left=False)

    assert patience < SECOND / 10
    assert pace.patience(SECOND) == SECOND


def test_the_paces_of_functions_are_apart() -> None:
    """A slow function does not make another one take fewer messages."""
    paces = Paces()

    paces.of("t/slow").took(100, 1, has_left=False)

    assert paces.of("t/slow").most == 1
    assert paces.of("t/other").most == 1_000_000


def test_the_paces_of_the_functions_that_were_called_last_are_known() -> None:
    """All others are forgotten, as any name may be that of a function behind an endpoint."""
    paces = Paces()
    names = [f"t/f{number}" for number in range(MOST_NAMES + 1)]
    for name in names:
        paces.of(name).took(1.0, 1, has_left=False)

    assert all(paces.of(name).is_known for name in names[1:])
    assert not paces.of(names[0]).is_known
