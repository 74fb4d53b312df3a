# SPDX-License-Identifier: Apache-2.0
"""Handles the engine's own messages: messages to reserved addresses, wake-ups, repairs, and messages from chunks."""

from __future__ import annotations

from collections.abc import Sequence

from statefun.engine import chunks, delays, repairs
from statefun.engine.clock import BatchClock
from statefun.engine.effects import Effects
from statefun.engine.failed_messages import FailedMessages
from statefun.engine.groups import OWN_PREFIX, Group, own_value
from statefun.engine.record_keys import REJECTION_NAMESPACE
from statefun.engine.wheel import TIMERS_NAMESPACE
from statefun.sdk.address import Address


class OwnMessages:
    """Handles the engine's own messages in one task.

    Args:
        clock: the present time.
        failed: applies failure policies.
    """

    def __init__(self, clock: BatchClock, failed: FailedMessages) -> None:
        self._clock = clock
        self._failed = failed

    def run_reserved(self, address: Address, group: Group, effects: Effects) -> bool:
        """Handle the rows of a group if its address is a reserved one; return whether it is."""
        if address.namespace == TIMERS_NAMESPACE:
            delays.run_reserved(
                address.name, group, effects, self._clock.begun, self._failed.token_in_use
            )
        elif address.namespace == REJECTION_NAMESPACE:
            self._failed.rejected(address.name, group, effects)
        elif address.namespace == chunks.CHUNKS_NAMESPACE:
            chunks.run_chunk(group, effects)
        else:
            return False
        return True

    def take(self, group: Group, effects: Effects) -> tuple[Sequence[int], Sequence[str]]:
        """Handle the wake-ups among a group's rows, and the messages that chunks have returned.

        Returns:
            The other rows of the group, and the typenames of the engine's own messages in all of its rows.

        Raises:
            CheckpointError: if one of the engine's own messages is damaged.
        """
        rows: Sequence[int] = range(group.start, group.end)
        if group.columns.untimed:
            rows = self._failed.without_untimed(group, effects)
        if not group.columns.has_own:
            return rows, ()
        typenames = group.columns.typename[group.start : group.end]
        special = [name for name in typenames if name.startswith(OWN_PREFIX)]
        if delays.WAKE_UP in special:
            rows = _wake_up(group, rows)
        if not repairs.CHANGES.isdisjoint(special):
            rows = repairs.repair(group, rows)
            delays.schedule_wake_up(group, self._clock.now(), effects)
        if chunks.KEPT in special:
            rows = chunks.arrive(group, rows)
        return rows, special


def _wake_up(group: Group, rows: Sequence[int]) -> Sequence[int]:
    """Record the wake-ups among a group's rows; return the other rows."""
    typename, value = group.columns.typename, group.columns.value
    others = []
    for row in rows:
        if typename[row] == delays.WAKE_UP:
            due = own_value(group.key, delays.WAKE_UP, value[row], delays.wake_up_time)
            group.values.wake_up(due)
        else:
            others.append(row)
    return others
