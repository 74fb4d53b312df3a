# SPDX-License-Identifier: Apache-2.0
"""Calls of functions behind endpoints, which a transport makes, and the messages that wait for such calls.

A transport may refuse a call for now, or return before all messages of the call are handled. The address
keeps messages that are not handled in its state until a later micro-batch calls the function again.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from statefun.engine import chunks, delays
from statefun.engine.address_keys import address_of, typename_of
from statefun.engine.calls import Call, call_for, waiting_row
from statefun.engine.clock import BatchClock
from statefun.engine.effects import Effects
from statefun.engine.failures import FailureCounts
from statefun.engine.groups import Group
from statefun.engine.immediate import ImmediateMessages
from statefun.engine.renamed import PresentNames
from statefun.protocol.runtime_pb2 import Outcome
from statefun.sdk.address import Address, TypeName
from statefun.sdk.invocation_batch import (
    InvocationBatch,
    InvocationResult,
    Postponed,
    Transport,
    Turn,
)
from statefun.sdk.printable import without_surrogates
from statefun.sdk.sent import DelayedMessage
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.times import in_milliseconds


class PendingCall(NamedTuple):
    """A call that a transport has not admitted yet; its messages are not decoded."""

    group: Group
    address: Address
    function: StatefulFunction
    rows: Sequence[int]
    may_be_retried: bool

    def decoded(self) -> Call:
        """Return the call with its messages decoded; messages that have waited come first."""
        return call_for(
            self.group, self.address, self.function, self.rows, may_be_retried=self.may_be_retried
        )


CallOutcome = tuple[Call, InvocationResult] | Postponed | None
"""A finished call with its result, or a ``Postponed`` that says why the call has to wait.

None: no message was ready for a call, or the call has left its micro-batch."""


class TransportCalls:
    """The calls that one task makes through transports, and the messages that wait for calls.

    Args:
        clock: the present time.
        counts: counts calls that have to be repeated, and keeps examples of their reasons for the log.
        turn: the suspect that has its turn, so that its server is called for no other address in this
            micro-batch; None if no suspect has its turn.
        immediate: the immediate messages of the task.
        names: the present names of functions.
    """

    def __init__(
        self,
        clock: BatchClock,
        counts: FailureCounts,
        turn: Turn | None,
        immediate: ImmediateMessages,
        names: PresentNames,
    ) -> None:
        self._names = names
        self._immediate = immediate
        self._clock = clock
        self._counts = counts
        self._turn = turn and turn._replace(address=names.address(turn.address))
        self._transports: dict[TypeName, Transport] = {}
        """The transports of the functions that this task has called, by the functions' typename."""
        self._postponed = 0
        """How many messages of this task have to wait for a later micro-batch."""
        self._suspects: list[tuple[bytes, str]] = []
        """The keys of the suspects (addresses that have to be called alone), each with its server."""
        self._has_taken_turn = False
        """Whether this task has called the suspect that has its turn."""
        self._waiting_bytes = Counter[str]()
        """By how many bytes the waiting messages to each function have grown in this task; negative if fewer wait."""
        self._waiting_messages = 0
        """How many more messages wait than before this task; negative if fewer wait."""

    async def admit(self, pending: PendingCall) -> Postponed | None:
        """Ask the transport to admit a call; return why the call has to wait, or None if it is admitted."""
        function, trouble = pending.function, pending.group.values.trouble
        transport = self._transports[function.typename] = function.elsewhere
        return await transport.admit(pending.address, trouble, self._turn)

    def with_history(self, call: Call, batch: InvocationBatch) -> InvocationBatch:
        """Return a copy of a batch with further facts about its address, for the transport.

        These are the failed attempts to call the address, and whether its server is called for no other address
        in this micro-batch.
        """
        trouble = call.group.values.trouble
        if self._turn is None or not self._turn.is_of(batch.target):
            return batch._replace(trouble=trouble)
        self._has_taken_turn = True
        has_company = self._turn.has_company
        return batch._replace(trouble=trouble, is_alone=True, has_company=has_company)

    def postpone(
        self, group: Group, messages: Sequence[bytes], postponed: Postponed, effects: Effects
    ) -> None:
        """Keep messages that have to wait, and call their address no more in this micro-batch.

        So no later message of the address overtakes them.

        Args:
            group: the address of the messages.
            messages: the messages, each a serialized ``Retry``.
            postponed: why and for how long they have to wait.
            effects: collects the messages to the chunks that keep them, and the wake-up of the address.
        """
        group.values.is_held_back = True
        until = 0
        if postponed.wait:
            until = self._clock.now() + in_milliseconds(postponed.wait)
        self._keep(group, messages, until, effects)
        if postponed.problem:
            address = self._names.address(address_of(group.key))
            text = f"function {address.typename} at address {address}: {postponed.problem}"
            self._counts.note(f"{address.typename} called again", "to be sent again", text)
        if postponed.suspect_of:
            self._suspects.append((group.key, postponed.suspect_of))
        if postponed.suspect_of or not postponed.wait:
            delays.wake_up_at_once(group, effects)

    def wait(self, group: Group, messages: Sequence[bytes], until: int, effects: Effects) -> None:
        """Keep new messages after all waiting messages of their address.

        Args:
            group: the address of the messages.
            messages: the new messages, each a serialized ``Retry``.
            until: when the function may be called again, in milliseconds since the epoch.
            effects: collects the messages to the chunks that keep them, and the wake-up of the address.
        """
        messages = [*messages, *self._immediate.give_up(group)]
        if group.values.chunks:
            self.append(group, messages, effects)
            messages = ()
        elif group.values.later:
            self._count(group, messages)
            group.values.later += messages
            messages = ()
        self._keep(group, messages, until, effects)

    def divide(self, group: Group, rows: Sequence[int], most: int) -> None:
        """Limit the next call of a group to its first messages; further ones wait for another call.

        The other call is made in the next micro-batch, unless the address has to wait.

        Args:
            group: the group.
            rows: the rows with its new messages, which come after its waiting messages.
            most: how many messages the next call gets, waiting ones first.
        """
        values = group.values
        new_messages = [waiting_row(group, row) for row in rows]
        self._count(group, new_messages)
        messages = [*values.waiting, *new_messages]
        values.keep_waiting(messages[:most])
        values.later = messages[most:]
        values.is_held_back = True

    def give_times(self, call: Call, result: InvocationResult) -> None:
        """Give the messages of an endpoint the earliest event time of the call's messages.

        A reply does not say in which invocation a message was sent.
        """
        least = min((each for each in call.batch.times or () if each is not None), default=None)
        for message in result.messages:
            message.event_time = least
        for delayed in result.delayed:
            if isinstance(delayed, DelayedMessage):
                delayed.message.event_time = least

    def leave_own(self, group: Group) -> None:
        """For the next micro-batch, keep the immediate messages that an address has sent itself; see ``give_up``."""
        own_messages = self._immediate.give_up(group)
        self._count(group, own_messages)
        group.values.later += own_messages

    def finish(self, group: Group, effects: Effects) -> None:
        """Add messages kept for the next micro-batch to the waiting messages of an address; plan its wake-up."""
        values = group.values
        values.wait(values.later, values.waiting_until)
        values.later = []
        if not (values.waiting_until or values.under_way):
            delays.wake_up_at_once(group, effects)
        delays.schedule_wake_up(group, self._clock.now(), effects)

    def count_waiting(self, group: Group, messages: int, size: int) -> None:
        """Count further waiting messages to an address, and their size in bytes; negative numbers if fewer wait."""
        self._waiting_messages += messages
        if size:
            self._waiting_bytes[self._names.typename(typename_of(group.key))] += size

    def append(self, group: Group, messages: Sequence[bytes], effects: Effects) -> None:
        """Keep new messages in a chunk, after all messages of earlier chunks."""
        self._count(group, messages)
        chunks.append(group.values, group.key, messages, effects)

    def resume(self, group: Group) -> None:
        """Stop counting the messages in the state of an address as waiting: they are handled now."""
        self.count_waiting(group, -len(group.values.waiting), -group.values.waiting_size)

    def _keep(self, group: Group, messages: Sequence[bytes], until: int, effects: Effects) -> None:
        self._count(group, messages)
        group.values.wait(messages, until)
        delays.schedule_wake_up(group, self._clock.now(), effects)

    def _count(self, group: Group, messages: Sequence[bytes]) -> None:
        self._postponed += len(messages)
        self.count_waiting(group, len(messages), sum(map(len, messages)))

    def report(self, counts: Outcome) -> None:
        """Add the waiting messages, the suspects and the states of endpoints to the outcome of the task."""
        counts.postponed = self._postponed
        counts.has_taken_turn = self._has_taken_turn
        counts.waiting_bytes.update(self._waiting_bytes)
        counts.waiting_messages = self._waiting_messages
        for address, server in self._suspects:
            counts.suspects.add(address=address, server=server)
        for transport in self._transports.values():
            for endpoint, problem, wait in transport.take_circuit_reports():
                counts.circuits.add(
                    endpoint=endpoint,
                    problem=without_surrogates(problem or ""),
                    worker=f"{platform.node()} {os.getpid()}",
                    wait=in_milliseconds(wait),
                )
