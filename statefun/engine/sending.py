# SPDX-License-Identifier: Apache-2.0
"""Checks the messages and egress records that functions send, and converts messages to rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from statefun.engine import delays
from statefun.engine.address_keys import SEPARATOR
from statefun.engine.clock import BatchClock
from statefun.engine.effects import Effects
from statefun.engine.program import Program
from statefun.engine.row import Row
from statefun.engine.sinks import egress_record
from statefun.engine.wheel import event_bucket, event_due
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import UnknownFunctionError
from statefun.sdk.message import Message, type_of
from statefun.sdk.misdirected import check_class
from statefun.sdk.sent import Cancellation, DelayedMessage, WakeUp
from statefun.sdk.structured import StructuredType
from statefun.sdk.times import in_milliseconds

_FULL_BYTES: Final = 1024 * 1024
"""The size of collected wake-ups at which they are sent: the limits of effects do not count them before."""


class _Target(NamedTuple):
    """Facts about the addresses of one function, to which messages are sent."""

    suffix: bytes
    """The part of the addresses' keys after the id."""
    runs_anywhere: bool
    """Whether any task can call the function: it has no state, is no coroutine function, and needs no endpoint."""
    checked: set[StructuredType[Any]]
    """The types of values that were sent to the function, and that it decodes as the same classes."""


class Sender:
    """Checks what the functions of a task send, and converts their messages to rows.

    Args:
        program: the functions and egresses of the application.
        clock: the present time.
        sequence: ascending numbers for delayed messages.
        watermark: the watermark, in milliseconds since the epoch; None if there is none.
    """

    def __init__(
        self,
        program: Program,
        clock: BatchClock,
        sequence: Iterator[int],
        watermark: int | None = None,
    ) -> None:
        self._watermark = watermark
        self._functions = program.functions
        self._egresses = program.egresses
        self._clock = clock
        self._targets: dict[str, _Target] = {}
        self._sequence = sequence

    def runs_anywhere(self, typename: str) -> bool:
        """Return whether any task can call a function, for any of its addresses.

        It can if the function has no state, is no coroutine function, and is not behind an endpoint. Before
        this call, :meth:`check` must have checked a message to the function.
        """
        return self._targets[typename].runs_anywhere

    def check(self, sent: Message | EgressMessage) -> Message | KafkaEgressMessage | None:
        """Check a message or a value for an egress; return the message, or the egress's record of the value.

        The result is None if the egress's serializer or transforms drop the value.

        Raises:
            StatefunError: if the function or egress does not exist, the egress cannot accept the value, or the
                function takes another class of the value's name.
        """
        if isinstance(sent, Message):
            target = self._target_of(sent)
            type_ = type_of(sent)
            if isinstance(type_, StructuredType) and type_ not in target.checked:
                check_class(sent, self._functions.for_typename(sent.target_typename))
                target.checked.add(type_)
            return sent
        return egress_record(sent, self._egresses, self._clock.begun)

    def delay(
        self, caller: bytes, delayed: Iterable[DelayedMessage | Cancellation], effects: Effects
    ) -> None:
        """Send the delayed messages of an address, and its cancellations of such messages."""
        now = self._clock.now()
        for each in delays.without_cancelled(delayed):
            token = each.cancellation_token
            if isinstance(each, Cancellation):
                delays.cancel(caller, token, effects)
                continue
            row = self.row(caller, each.message)
            if each.due is None:
                due = delays.Due(now + in_milliseconds(each.delay), now, next(self._sequence))
            else:
                cause = each.message.event_time
                due = delays.Due.at_event_time(
                    each.due, self._watermark, cause, next(self._sequence)
                )
            if token:
                delays.send_cancellable(due, row, token, effects)
            else:
                delays.send_at(due, row, effects)

    def wake_up(self, key: bytes, wake_up: WakeUp, effects: Effects) -> None:
        """Send a wake-up of an address, given the address's key."""
        due = event_due(wake_up.due)
        now = due if self._watermark is None else min(self._watermark, due)
        bucket = event_bucket(due, now, key, wake_up.step)
        place = bucket, WakeUp(due, wake_up.typename, wake_up.step)
        keys = effects.wake_ups.get(place)
        if keys is None:
            keys = effects.wake_ups[place] = {}
        if key not in keys:  # one wake-up is enough for all windows of the address
            keys[key] = wake_up.trace
            effects.wake_ups_size += len(key) + len(wake_up.trace)
            if effects.wake_ups_size > _FULL_BYTES:
                delays.send_wake_ups(effects)

    def row(self, caller: bytes, message: Message) -> Row:
        """Return a message that the address with the key ``caller`` sends, as a row."""
        target = message.target_id.encode() + self._target_of(message).suffix
        return Row(target, caller, *message.typed_value, message.trace, message.event_time)

    def _target_of(self, message: Message) -> _Target:
        """Return the facts about the function to which a message is sent.

        Raises:
            UnknownFunctionError: if there is no such function.
        """
        typename = message.target_typename
        target = self._targets.get(typename)
        if target is not None:
            return target
        function = self._functions.find(typename)
        if function is None:
            raise UnknownFunctionError(
                f"a message was sent to {typename}/{message.target_id}, and no function {typename} "
                f"is registered{self._functions.hint(typename)}"
            )
        stored_name = self._functions.stored_name(typename)
        target = _Target(SEPARATOR + stored_name.encode(), function.runs_anywhere, set())
        self._targets[typename] = target
        return target
