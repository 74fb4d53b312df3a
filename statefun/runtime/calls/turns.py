# SPDX-License-Identifier: Apache-2.0
"""Turns: micro-batches in which a server is called for one suspect alone, to find out whether it crashes the server."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from statefun.engine.address_keys import address_of
from statefun.engine.clock import Clock
from statefun.protocol.runtime_pb2 import Outcome
from statefun.sdk.invocation_batch import Turn
from statefun.sdk.times import in_milliseconds

_LONGEST_WAIT = timedelta(seconds=10)
"""How long a suspect waits, at most, for calls that have left earlier micro-batches; then an outage counts in any case."""
_LONGEST_TURN = timedelta(seconds=30)
"""How long a suspect that waits for such calls keeps its turn, if its server cannot be called."""


class Turns:
    """Chooses the suspects that are called alone.

    During a turn, the server gets no other new calls, but calls that have left earlier micro-batches go on there. If
    the server crashes meanwhile, one of these calls may be the reason: so the outage does not count, and the suspect
    gets another turn after these calls have ended. Most of them end with the crash.

    Args:
        busy_servers: returns the servers at which calls that have left earlier micro-batches go on.
        clock: the clock of the driver.
    """

    def __init__(self, busy_servers: Callable[[], Collection[str]], clock: Clock) -> None:
        self._busy_servers = busy_servers
        self._clock = clock
        self._turn: Turn | None = None
        self._since: int | None = None
        """When the server has crashed while such calls went on, in milliseconds of the monotonic clock, or None."""

    def next(self) -> Turn | None:
        """Return the turn of the next micro-batch; None if no suspect has its turn."""
        if self._turn is not None:
            is_busy = self._turn.server in self._busy_servers()
            waits = is_busy and self._since is not None
            if waits and self._has_lasted(_LONGEST_WAIT):
                is_busy = waits = False
            self._turn = self._turn._replace(has_company=is_busy, waits=waits)
        return self._turn

    def choose(self, outcomes: Sequence[Outcome]) -> None:
        """Choose the suspect that has its turn in the next micro-batch, given the outcomes of the present one's tasks.

        Only one address of the whole application is chosen, at random. Several endpoints may be on one server: if two
        suspects were called in a micro-batch, a crash would not show which of them is the reason.
        """
        suspects = [
            Turn(address_of(suspect.address), suspect.server)
            for outcome in outcomes
            for suspect in outcome.suspects
        ]
        if (turn := self._turn) is not None:
            if any(outcome.has_taken_turn for outcome in outcomes):
                has_crashed = turn.has_company and turn._replace(has_company=False) in suspects
                self._since = self._clock.monotonic() if has_crashed else None
            if self._since is not None and not self._has_lasted(_LONGEST_TURN):
                return
        self._since = None
        self._turn = random.choice(suspects) if suspects else None  # noqa: S311 - each gets its turn at some time

    def _has_lasted(self, time: timedelta) -> bool:
        since = self._since
        return since is not None and self._clock.monotonic() - since >= in_milliseconds(time)
