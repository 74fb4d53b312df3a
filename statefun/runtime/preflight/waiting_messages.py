# SPDX-License-Identifier: Apache-2.0
"""Counts the messages and timers that wait in a checkpoint, and finds when the timers are due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import chain

import attrs

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.stored.stored_state import StoredState
from statefun.runtime.stored.undelivered import undelivered
from statefun.runtime.terminal.table import counted
from statefun.sdk.times import from_epoch_millis


@attrs.define
class WaitingMessages:
    """The messages that wait in a checkpoint for one function."""

    messages: int = 0
    """How many are in the outbox or an inbox and not delivered yet, or wait until the function can be called."""
    timers: int = 0
    """How many are delayed and not due yet."""
    first_due: int = 0
    """When the first timer is due, in milliseconds since the epoch; 0 if there is none."""
    last_due: int = 0
    """When the last timer is due, in milliseconds since the epoch; 0 if there is none."""

    def add_timer(self, due: int) -> None:
        """Count a delayed message."""
        self.first_due = min(self.first_due, due) if self.timers else due
        self.last_due = max(self.last_due, due)
        self.timers += 1

    def add(self, other: WaitingMessages) -> None:
        """Add the messages and timers that ``other`` has counted."""
        self.messages += other.messages
        if other.timers:
            self.first_due = min(self.first_due or other.first_due, other.first_due)
            self.last_due = max(self.last_due, other.last_due)
            self.timers += other.timers

    @property
    def text(self) -> str:
        """The numbers of messages and timers as text.

        >>> WaitingMessages(messages=1200).text
        '1,200 messages'
        >>> waiting = WaitingMessages(messages=1)
        >>> waiting.add_timer(1_000)
        >>> waiting.text
        '1 message and 1 timer (due 1970-01-01 00:00:01 UTC)'
        """
        parts = []
        if self.messages:
            parts.append(counted(self.messages, "message"))
        if self.timers:
            parts.append(f"{counted(self.timers, 'timer')} (due {self.due} UTC)")
        return " and ".join(parts)

    @property
    def due(self) -> str:
        """When the timers are due, as text."""
        first, last = (
            f"{from_epoch_millis(due):%Y-%m-%d %H:%M:%S}" for due in (self.first_due, self.last_due)
        )
        return first if first == last else f"from {first} to {last}"


def waiting_messages(
    checkpoint: Folder, state: StoredState
) -> dict[tuple[str, str], WaitingMessages]:
    """Return the messages that wait in a checkpoint: they are delayed, wait for a call, or are not delivered yet.

    The keys are the stored name of the function of their targets, and the typename of their values, which is empty
    for messages without a value.
    """
    found: defaultdict[tuple[str, str], WaitingMessages] = defaultdict(WaitingMessages)
    for key, count in state.waiting().items():
        found[key].messages += count
    for typename, value_type, due in chain(undelivered(checkpoint), state.timers()):
        waiting = found[typename, value_type]
        if due:
            waiting.add_timer(due)
        else:
            waiting.messages += 1
    return dict(found)


def by_function(
    found: Mapping[tuple[str, str], WaitingMessages],
) -> dict[str, WaitingMessages]:
    """Return waiting messages of all types together, by the stored name of the function of their targets."""
    together: defaultdict[str, WaitingMessages] = defaultdict(WaitingMessages)
    for (typename, _), waiting in found.items():
        together[typename].add(waiting)
    return dict(together)
