# SPDX-License-Identifier: Apache-2.0
"""Immediate messages: they are delivered in the micro-batch that sends them.

Two kinds of messages are immediate, because their delivery needs no other address's state: the messages of
an address to itself, and the messages of a function with state to plain functions without state. A plain
function is no coroutine function, and not behind an endpoint. All other messages go through the outbox, also
those to coroutine functions: while a call of an address goes on, further messages to the address wait in its
state, and an immediate message would overtake them.

A plain function without state that is called with an immediate message may be called in another task at the
same time. All messages that it sends then go through the outbox: otherwise its messages to one target could
overtake each other. When it is called with the rows of its own group, its messages to itself are immediate:
they come after all rows, and so after its earlier messages that went through the outbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from statefun.engine.address_keys import address_of
from statefun.engine.buckets import send
from statefun.engine.calls import Call, retry_of
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.row import Row
from statefun.engine.sending import Sender
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.message import Message
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.types import TypedValue


class ImmediateMessages:
    """Decides which messages of one task are immediate, and makes the calls that deliver them.

    Args:
        functions: the functions of the application.
        batch: the number of the micro-batch.
        delivered_up_to: all messages of micro-batches up to this one were delivered before the present
            micro-batch; None while messages of an earlier run are on their way, or wait for functions that have become
            plain ones without state.
        limit: how many messages of one address may be immediate in a micro-batch.
    """

    def __init__(
        self, functions: StatefulFunctions, batch: int, delivered_up_to: int | None, limit: int
    ) -> None:
        self._functions = functions
        self._batch = batch
        self._delivered_up_to = delivered_up_to
        self._limit = limit

    def collect(
        self,
        call: Call,
        messages: Sequence[Message],
        delayed: Sequence[DelayedMessage | Cancellation],
        sender: Sender,
        effects: Effects,
    ) -> None:
        """Collect the messages of a call, in the order of Apache Flink Stateful Functions.

        Args:
            call: the call that has sent the messages.
            messages: its messages, of which those that may be immediate are kept.
            delayed: its delayed messages, and cancellations of such messages.
            sender: converts messages to rows.
            effects: collects the messages that are not immediate.
        """
        for message in messages:
            row = sender.row(call.key, message)
            runs_anywhere = sender.runs_anywhere(message.target_typename)
            if not self.take(call, row, runs_anywhere=runs_anywhere):
                send(row, effects)
        if delayed:
            sender.delay(call.key, delayed, effects)

    def take(self, call: Call, row: Row, *, runs_anywhere: bool) -> bool:
        """Keep a message for delivery in this micro-batch if it may be immediate; return whether it is kept.

        Args:
            call: the call that has sent the message.
            row: the message.
            runs_anywhere: whether any task can call the target's function, as it has no state, is no
                coroutine function, and is not behind an endpoint.
        """
        values = call.group.values
        if call.key != call.group.key:
            return False
        if row.target == call.key:
            if values.chunks:  # they hold earlier messages, which no immediate message may overtake
                values.immediate_count = self._limit
            stays = values.immediate_count < self._limit
        elif runs_anywhere and call.function.specs:
            stays = values.has_room(self._batch, self._delivered_up_to, self._limit)
        else:
            return False
        if stays:
            values.immediate_count += 1
            if values.immediate is None:
                values.immediate = deque()
            values.immediate.append(row)
        return stays

    def next_call(self, group: Group) -> Call | None:
        """Return the call with a group's next immediate messages, as far as they have the same target.

        The result is None if there are no immediate messages, or if the address gets further rows, which come first.
        """
        values = group.values
        messages = values.immediate
        if not (group.last and messages):
            return None
        sender = address_of(group.key)
        key = messages[0].target
        invocations = []
        times: list[int | None] = []
        while messages and messages[0].target == key:
            _, _, typename, value, trace, event_time = messages.popleft()
            invocations.append(Invocation(sender, TypedValue(typename, value), trace))
            times.append(event_time)
        address = address_of(key)
        function = self._functions.for_typename(address.typename)
        if function.stored_as:
            address = function.address(address.id)
        state = values.values if key == group.key else {}
        has_times = group.columns.times is not None
        batch = InvocationBatch(address, state, invocations, times=times if has_times else None)
        return Call(group, key, function, batch, ())

    def give_up(self, group: Group) -> list[bytes]:
        """Take back the immediate messages of an address to itself, which have to wait for its function.

        Its immediate messages to other addresses are still delivered in this micro-batch, as their calls do
        not need the state of the address.

        Returns:
            The messages of the address to itself, in the form in which messages wait; none if the address
            gets further rows in this micro-batch, because the messages come after these rows.
        """
        values = group.values
        if not (group.last and values.immediate):
            return []
        own_messages = [retry_of(row) for row in values.immediate if row.target == group.key]
        values.immediate = deque(row for row in values.immediate if row.target != group.key)
        return own_messages
