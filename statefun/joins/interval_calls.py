# SPDX-License-Identifier: Apache-2.0
"""Joins two streams: finds the partners of a record that came before it, and lets the record wait for later ones.

A record waits until every further partner would be late: so the pairs do not depend on the order in which the records
come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from statefun.joins.buffered import Buffer, Buffered
from statefun.sdk.call_context import context_values
from statefun.sdk.callables import refuse_coroutine
from statefun.sdk.context import Context
from statefun.sdk.errors import (
    FunctionError,
    LateMessageError,
    StateDecodeError,
    UnexpectedValueError,
    ValueDecodeError,
    caused,
)
from statefun.sdk.handlers import Handler, Handlers
from statefun.sdk.message import ReceivedMessage
from statefun.sdk.sent import WakeUp
from statefun.sdk.times import from_epoch_millis
from statefun.sdk.types import SimpleType
from statefun.sdk.waking import send_to_itself

WAKE_UP_TYPE: SimpleType[bytes] = SimpleType("io.statefun.python/join-wake-up", bytes, bytes)
"""The type of the messages with which an address wakes itself up."""
_SECOND = 1000
"""Records wait until a whole second, so that an address is woken up once for those of a second; in milliseconds."""


class Interval(NamedTuple):
    """How far the times of partners are from each other, in milliseconds."""

    before: int
    """How much earlier than a left record its partners are, at most."""
    after: int
    """How much later they are, at most."""
    grace: int
    """How far the watermark passes the time of a record before the record is late."""


class Unmatched:
    """A user's handler of records that have had no partner.

    Args:
        fun: the handler.
        takes: the annotations of the values that the handler takes; they are some of those of ``side``.
        side: the annotations of all values of the stream.
    """

    def __init__(
        self, fun: Callable[[Any, Any], Any], takes: Sequence[Any], side: Sequence[Any]
    ) -> None:
        self.fun = fun
        self.annotations = [each for each in side if each in takes]
        others = [each for each in side if each not in takes]
        self._own, self._others = (
            Handlers((Handler(fun, tuple(each), None, False),))
            for each in (self.annotations, others)
        )

    def takes(self, typename: str) -> bool:
        """Return whether the handler takes values of the stream with a typename."""
        return self._own.takes(typename) or not self._others.takes(typename)


class IntervalCalls:
    """The handlers of a function that joins two streams.

    Args:
        fun: the user's function; it is called with each pair.
        left: the annotations of the values of the first stream.
        right: the annotations of the values of the second stream.
        interval: how much earlier or later than a record its partner may be.
    """

    joins_at_once: ClassVar[bool] = True
    """Whether partners are joined as soon as both have come."""

    def __init__(
        self,
        fun: Callable[..., Any],
        left: tuple[Any, ...],
        right: tuple[Any, ...],
        interval: Interval,
    ) -> None:
        self._fun = fun
        self._decoder = Handlers(tuple(Handler(fun, each, None, False) for each in (left, right)))
        self._before, self._after, self._grace = interval
        self.unmatched: dict[bool, list[Unmatched]] = {True: [], False: []}
        """The handlers of values that have had no partner, by whether they are for left values."""

    def add(self, context: Context, value: Any, *, is_left: bool) -> None:
        """Join a record with the partners that came before it, and let the record wait for later ones."""
        time = self._time_of(context)
        buffer = Buffer(context_values(context))
        is_matched = self.joins_at_once and self._join(
            context, buffer, time, value, is_left=is_left
        )
        later = self._after if is_left else self._before
        due = -(-(time + later + self._grace + 1) // _SECOND) * _SECOND
        is_waking_up = buffer.is_waking_up(time, due)
        message: Any = context._message  # noqa: SLF001 - no part of the API
        typed_value = message.typed_value
        buffer.add(time, due, typed_value, is_left=is_left, is_matched=is_matched)
        if not is_waking_up:
            send_to_itself(context, WakeUp(due, WAKE_UP_TYPE.typename, _SECOND))
        self._forget(context, buffer)

    def wake_up(self, context: Context, _value: bytes) -> None:
        """Let go of the records for which no partner can come any longer."""
        # The watermark decides, too: a wake-up that comes back as a dead letter has no event time.
        times = context._event_time, context._watermark  # noqa: SLF001 - as above
        now = max((each for each in times if each is not None), default=None)
        if now is None:
            return
        buffer = Buffer(context_values(context))
        due = buffer.due(now)
        for record in due:
            self._let_go(context, buffer, record)
        if due:
            buffer.remove(due)
        self._forget(context, buffer)

    def _join(
        self, context: Context, buffer: Buffer, time: int, value: Any, *, is_left: bool
    ) -> bool:
        """Call the function with a record and each partner that has come before; return whether there is one."""
        earlier, later = (self._before, self._after) if is_left else (self._after, self._before)
        partners = [
            each for each in buffer.between(time - earlier, time + later) if each.is_left != is_left
        ]
        for partner in partners:
            other = self._value(context, buffer, partner)
            pair = (value, other) if is_left else (other, value)
            refuse_coroutine(self._fun(context, *pair))
        buffer.match(partners)
        return bool(partners)

    def _let_go(self, context: Context, buffer: Buffer, record: Buffered) -> None:
        """Handle a record for which no partner can come any longer."""
        if record.is_matched:
            return
        for handler in self.unmatched[record.is_left]:
            if handler.takes(buffer.value(record).typename):
                refuse_coroutine(handler.fun(context, self._value(context, buffer, record)))

    def _forget(self, context: Context, buffer: Buffer) -> None:
        """Remove the records that have become useless before no partner can come any longer."""

    def _value(self, context: Context, buffer: Buffer, record: Buffered) -> Any:
        """Return what handlers get of a record that has waited."""
        message = ReceivedMessage(context.address, buffer.value(record), None, 0)
        try:
            return self._decoder.decoded(message)[1]
        except (ValueDecodeError, UnexpectedValueError) as error:
            # The message that is handled now is not the reason, so the policy of its route must not decide.
            cause = error.__cause__
            text = f"a record that has waited for a partner cannot be read: {error.message}"
            raise caused(StateDecodeError(text), cause) from cause

    def _time_of(self, context: Context) -> int:
        time, watermark = context._event_time, context._watermark  # noqa: SLF001 - as above
        address = context.address
        if time is None:
            raise FunctionError(
                f"function {address.typename} at address {address}: the message has no event time, so it has no partners: "
                "send it from a function that handles a record with event time"
            )
        if watermark is not None and time + self._grace < watermark:
            raise LateMessageError(
                f"function {address.typename} at address {address}: a message of {from_epoch_millis(time).isoformat()} "
                f"is late, as the watermark is {from_epoch_millis(watermark).isoformat()}: its partners may be gone"
            )
        return time
