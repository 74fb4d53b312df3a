# SPDX-License-Identifier: Apache-2.0
"""Looks at values that expire, and at the wake-ups of their addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from simulation.arrow_batches import Row
from simulation.functions import LIFETIMES
from simulation.world import Attempt, Attempts, World
from statefun.engine.delays import WAKE_UP
from statefun.protocol.runtime_pb2 import AddressState

_MARKED = (b"/a", b"/b")
"""The ends of the keys of addresses with such values, which also have one that stays."""


def look_at_wake_ups(world: World, attempt: Attempt, rows: Iterable[Row]) -> None:
    """Compare the wake-ups that a micro-batch delivers with those that their addresses expect."""
    came = Counter(
        (row.target, int(row.value))
        for row in rows
        if row.typename == WAKE_UP and row.target.endswith(_MARKED)
    )
    for (target, due), count in came.items():
        expected = AddressState.FromString(attempt.state[target]).wake
        if count > 1 or due not in expected:
            world.wrong = f"{target!r} expects {expected}, and gets {due} {count} times"


def not_expired(attempts: Attempts) -> Iterator[str]:
    """Find values that should have expired at the end."""
    for key, stored in attempts[max(attempts)].state.items() if attempts else ():
        names = {value.name for value in AddressState.FromString(stored).values}
        if not names.isdisjoint(LIFETIMES):
            yield f"values of {key!r} do not expire"
