# SPDX-License-Identifier: Apache-2.0
"""Counts the messages and timers that wait in a checkpoint, and finds when the timers are due."""

from __future__ import annotations

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
    """How many are in the outbox and not delivered yet, or wait until the function can be called."""
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


def waiting_messages(checkpoint: Folder, state: StoredState) -> dict[str, WaitingMessages]:
    """Return the messages that wait in a checkpoint, by the stored name of the function of their targets.

    They are delayed, wait for a call, or are in the outbox and not delivered yet.
    """
    found: dict[str, WaitingMessages] = {}
    for typename, count in state.waiting().items():
        found.setdefault(typename, WaitingMessages()).messages += count
    for typename, due in chain(undelivered(checkpoint), state.timers()):
        waiting = found.setdefault(typename, WaitingMessages())
        if due:
            waiting.add_timer(due)
        else:
            waiting.messages += 1
    return found
