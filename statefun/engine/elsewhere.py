# SPDX-License-Identifier: Apache-2.0
"""Functions elsewhere, as the dispatcher sees them: when they are called, and what waits for them."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import NamedTuple

from statefun.engine import chunks, delays
from statefun.engine.address_keys import address_of
from statefun.engine.calls import Call, call_for, retry_of
from statefun.engine.clock import BatchClock, in_milliseconds
from statefun.engine.effects import Effects
from statefun.engine.failures import FailureCounts
from statefun.engine.groups import Group
from statefun.protocol.runtime_pb2 import Outcome
from statefun.remote.circuit import take_news
from statefun.sdk.address import Address
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult, Postponed, Turn
from statefun.sdk.stateful_function import StatefulFunction


class Visit(NamedTuple):
    """The messages of a group for a function elsewhere, which may have to wait."""

    group: Group
    address: Address
    function: StatefulFunction
    rows: Sequence[int]
    may_be_retried: bool

    def made(self) -> Call:
        """Decode the messages, those that have waited first."""
        return call_for(
            self.group, self.address, self.function, self.rows, may_be_retried=self.may_be_retried
        )


Answered = tuple[Call, InvocationResult] | Postponed | None
"""What becomes of a call; None if none of its messages can be decoded."""


class Elsewhere:
    """The functions elsewhere that a task calls, and the messages that wait for them.

    Args:
        clock: the present time.
        counts: takes note of answers that are no replies.
        turn: the address that may be called alone in this micro-batch, if there is one.
    """

    def __init__(self, clock: BatchClock, counts: FailureCounts, turn: Turn | None) -> None:
        self._clock = clock
        self._counts = counts
        self._turn = turn
        self._postponed = 0
        self._suspects: list[tuple[bytes, str]] = []
        """Addresses that have to be called alone, and on which server."""
        self._waiting_bytes = 0
        """How much more waits than before."""
        take_news()  # an earlier application's of this process

    async def admit(self, visit: Visit) -> Postponed | None:
        """Ask whether a function can be called now; return why not, or None."""
        trouble = visit.group.values.trouble
        return await visit.function.elsewhere.admit(visit.address, trouble, self._turn)

    def seen(self, call: Call, batch: InvocationBatch) -> InvocationBatch:
        """Return the batch of a call with what earlier ones have come to."""
        is_alone = self._turn is not None and self._turn.address == batch.target
        return batch._replace(trouble=call.group.values.trouble, is_alone=is_alone)

    def postpone(
        self, group: Group, messages: Sequence[bytes], postponed: Postponed, effects: Effects
    ) -> None:
        """Keep messages that have to wait at their address, so that none overtakes them."""
        values = group.values
        waiting = [*messages, *_immediate(group)]
        values.is_held_back = True
        self._keep(group, waiting, self._clock.now() + in_milliseconds(postponed.wait), effects)
        if postponed.problem:
            address = address_of(group.key)
            text = f"function {address.typename} at address {address}: endpoint {postponed.problem}"
            self._counts.note(f"{address.typename} called again", "to be sent again", text)
        if postponed.suspect_of:
            self._suspects.append((group.key, postponed.suspect_of))
            delays.wake_up_at_once(group, effects)

    def wait(self, group: Group, messages: Sequence[bytes], until: int, effects: Effects) -> None:
        """Keep new messages until then, in milliseconds since the epoch, behind all others."""
        messages = [*messages, *_immediate(group)]
        if group.values.chunks:
            self.append(group, messages, effects)
            messages = ()
        self._keep(group, messages, until, effects)

    def append(self, group: Group, messages: Sequence[bytes], effects: Effects) -> None:
        """Keep new messages behind those that have not come back yet."""
        self._count(messages)
        chunks.append(group.values, group.key, messages, effects)

    def took(self, group: Group) -> None:
        """Take note that the messages in the state of an address wait no more."""
        self._waiting_bytes -= group.values.waiting_size

    def _keep(self, group: Group, messages: Sequence[bytes], until: int, effects: Effects) -> None:
        self._count(messages)
        group.values.wait(messages, until)
        chunks.settle_chunks(group.values, group.key, effects)
        delays.schedule_wake_up(group, self._clock.now(), effects)

    def _count(self, messages: Sequence[bytes]) -> None:
        self._postponed += len(messages)
        self._waiting_bytes += sum(map(len, messages))

    def report(self, counts: Outcome) -> None:
        """Report what waits, and what is new about endpoints."""
        counts.postponed, counts.waiting_bytes = self._postponed, self._waiting_bytes
        for address, server in self._suspects:
            counts.suspects.add(address=address, server=server)
        for endpoint, problem, wait in take_news():
            counts.circuits.add(
                endpoint=endpoint,
                problem=problem or "",
                worker=f"{platform.node()} {os.getpid()}",
                wait=in_milliseconds(wait),
            )


def _immediate(group: Group) -> list[bytes]:
    """Take what an address has sent itself, once all of its rows are there: that comes after them."""
    if not group.last:
        return []
    taken = [*map(retry_of, group.values.immediate)]
    group.values.immediate.clear()
    return taken
