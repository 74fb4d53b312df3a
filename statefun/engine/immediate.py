# SPDX-License-Identifier: Apache-2.0
"""Messages that are delivered in the micro-batch that sends them, as they need no other address's state.

An address's messages to itself are, and those of a function with state to functions without. The order
per sender and target forbids more. A function without state that is invoked here, because a group's
address has messaged it, may be invoked in another task at the same time: so the messages that it sends go
through the outbox. So do the messages that it sends when it is invoked for its own group, except messages
to itself: such a message comes after earlier ones that went through the outbox.
"""

from __future__ import annotations

from statefun.engine.address_keys import address_of
from statefun.engine.buckets import send
from statefun.engine.calls import Call, retry_of
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.row import Row
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.types import TypedValue


class ImmediateMessages:
    """The immediate messages of the addresses of one task.

    Args:
        functions: the functions of the application.
        batch: the number of the micro-batch.
        delivered_up_to: the newest micro-batch up to which all messages were delivered before; None while
            messages of an earlier run are on their way.
        limit: how many messages of an address may be immediate.
    """

    def __init__(
        self, functions: StatefulFunctions, batch: int, delivered_up_to: int | None, limit: int
    ) -> None:
        self._functions = functions
        self._batch = batch
        self._delivered_up_to = delivered_up_to
        self._limit = limit

    def take(self, call: Call, row: Row, *, is_stateless: bool) -> bool:
        """Keep a message for this micro-batch, if it may be immediate; return whether.

        Args:
            call: the call that has sent the message.
            row: the message.
            is_stateless: whether its target's function keeps no values.
        """
        values = call.group.values
        if call.key != call.group.key:
            return False
        if row.target == call.key:
            if values.chunks:  # then no later message of this micro-batch may overtake it
                values.immediate_count = self._limit
            stays = values.immediate_count < self._limit
        elif is_stateless and call.function.specs:
            stays = values.has_room(self._batch, self._delivered_up_to, self._limit)
        else:
            return False
        if stays:
            values.immediate_count += 1
            values.immediate.append(row)
        return stays

    def next_call(self, group: Group) -> Call | None:
        """Return the call for the first immediate messages, up to another target; None without any.

        They come after all rows of the address, the last of which need not have caused a call.
        """
        values = group.values
        messages, sender = values.immediate, address_of(group.key)
        if not (group.last and messages):
            return None
        key = messages[0].target
        invocations = []
        while messages and messages[0].target == key:
            _, _, typename, value, trace = messages.popleft()
            invocations.append(Invocation(sender, TypedValue(typename, value), trace))
        address = address_of(key)
        state = values.values if key == group.key else {}
        batch = InvocationBatch(address, state, invocations)
        return Call(group, key, self._functions.for_typename(address.typename), batch, ())

    def give_up(self, group: Group, effects: Effects) -> list[bytes]:
        """Return the immediate messages of an address to itself, as messages that wait.

        Its messages to others go through the outbox; then no later ones may be immediate until these are
        delivered. All come after the rows of the address: so there are none before the last rows.
        """
        values = group.values
        if not (group.last and values.immediate):
            return []
        own_messages = []
        for row in values.immediate:
            if row.target == group.key:
                own_messages.append(retry_of(row))
            else:
                values.close_room(self._batch)
                send(row, effects)
        values.immediate.clear()
        return own_messages
