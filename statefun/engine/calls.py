# SPDX-License-Identifier: Apache-2.0
"""Converts rows to calls of functions, and the messages of calls to retry envelopes or failed messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final

from statefun.engine.address_keys import address_key, address_of
from statefun.engine.failures import RETRY, FailedMessage
from statefun.engine.groups import Columns, Group, own_value
from statefun.engine.record_routes import RecordRoutes
from statefun.engine.row import Row
from statefun.engine.under_way import UnderWay
from statefun.module.transforming import transformed_topic
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.protocol.runtime_pb2 import Retry as RetriedMessage
from statefun.sdk.address import Address
from statefun.sdk.errors import StatefunError
from statefun.sdk.invocation_batch import (
    NO_TROUBLE,
    FailedInvocation,
    Invocation,
    InvocationBatch,
)
from statefun.sdk.record import IngressRecord
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.times import from_epoch_millis
from statefun.sdk.types import TypedValue

_make_batch: Final = partial(tuple.__new__, InvocationBatch)
_NO_ROW: Final = -1
_NONE: Final[Mapping[int, RetriedMessage]] = MappingProxyType({})


class Call:
    """A call of a function: an invocation batch, and the rows of a group that it was made from.

    Args:
        group: the messages and the state of the address.
        key: the key of the called address: the group's own key, or that of the target of immediate messages.
        function: the function.
        batch: the messages of the call, and the state that the function sees.
        rows: the index of each message's row in the group's columns; empty if the messages are immediate ones.
        retried: the retry envelopes in which messages have waited, by the message's index in the batch.
        originals: the value of each message before deserializers decoded records; empty if no record was
            decoded.
        left: when the call left its micro-batch, in milliseconds since the epoch; 0 if it has not.
    """

    __slots__ = ("batch", "function", "group", "key", "left", "originals", "retried", "rows")

    def __init__(  # noqa: PLR0913, PLR0917 - one object for each address: keywords would take time
        self,
        group: Group,
        key: bytes,
        function: StatefulFunction,
        batch: InvocationBatch,
        rows: Sequence[int],
        retried: Mapping[int, RetriedMessage] = _NONE,
        originals: Sequence[TypedValue] = (),
        left: int = 0,
    ) -> None:
        self.group = group
        self.key = key
        self.function = function
        self.batch = batch
        self.rows = rows
        self.retried = retried
        self.originals = originals
        self.left = left

    def record(self, index: int) -> RecordOrigin | None:
        """Return the origin of a message that was an ingress record; None for other messages."""
        return _record(self.group.columns, self.rows, self.retried, index)

    def was_encoded(self, index: int) -> bool:
        """Return whether a message is a record that no deserializer had decoded when the call was made."""
        again = self.retried.get(index)
        if again is not None:
            return again.encoded
        return bool(self.rows) and self.group.columns.is_encoded(self.rows[index])


def call_for(
    group: Group,
    address: Address,
    function: StatefulFunction,
    rows: Sequence[int],
    *,
    may_be_retried: bool,
) -> Call:
    """Return the call of the function at a group's address for some rows of the group.

    Waiting messages of the address come first in the call.

    Args:
        group: the messages and the state of the address.
        address: the address.
        function: the function at the address.
        rows: the rows of the messages that come after the waiting messages.
        may_be_retried: whether the rows may hold retry envelopes, which are then unwrapped.
    """
    columns = group.columns
    invocations = [columns.invocation(row) for row in rows]
    if group.values.waiting:
        waiting_messages = [TypedValue(RETRY, each) for each in group.values.take_waiting()]
        invocations[:0] = [Invocation(None, each) for each in waiting_messages]
        rows = [*repeat(_NO_ROW, len(waiting_messages)), *rows]
        may_be_retried = True
    retried = _unwrap_retried(group.key, invocations) if may_be_retried else _NONE
    batch = batch_of(group, address, invocations, rows, retried)
    return Call(group, group.key, function, batch, rows, retried)


def call_of_long(
    group: Group, address: Address, function: StatefulFunction, under_way: UnderWay
) -> Call:
    """Return the long call of a group's address, with the messages that the state of the address has kept."""
    messages = under_way.messages
    invocations = [Invocation(None, TypedValue(RETRY, each)) for each in messages]
    rows = [_NO_ROW] * len(messages)
    retried = _unwrap_retried(group.key, invocations)
    batch = batch_of(group, address, invocations, rows, retried)
    return Call(group, group.key, function, batch, rows, retried, left=under_way.since)


def batch_of(
    group: Group,
    address: Address,
    invocations: Sequence[Invocation],
    rows: Sequence[int],
    retried: Mapping[int, RetriedMessage],
) -> InvocationBatch:
    """Return an invocation batch that can look up its messages' ingress records in rows and retry envelopes."""
    look_up = partial(_ingress_record, group.columns, rows, retried)
    times = None
    if group.columns.times is not None:
        times = _event_times(group.columns.times, len(invocations), rows, retried)
    state = group.values.values
    parts = address, state, invocations, look_up, NO_TROUBLE, False, None, times, None, False, None
    return _make_batch(parts)


def _event_times(
    times: Sequence[int | None],
    count: int,
    rows: Sequence[int],
    retried: Mapping[int, RetriedMessage],
) -> list[int | None]:
    """Return the event times of a call's messages.

    Args:
        times: the event times of all rows of the group's columns.
        count: the number of messages.
        rows: the row of each message.
        retried: the retry envelopes in which messages have waited, by the message's index in the call.
    """
    found: list[int | None] = []
    for index in range(count):
        again = retried.get(index)
        if again is None:
            found.append(times[rows[index]])
        else:
            found.append(again.event_time if again.HasField("event_time") else None)
    return found


def _unwrap_retried(key: bytes, invocations: list[Invocation]) -> dict[int, RetriedMessage]:
    """Replace each retry envelope with the message it carries; return the envelopes by index."""
    retried = {}
    for index, invocation in enumerate(invocations):
        if invocation.argument.typename == RETRY:
            value: Any = invocation.argument.value
            again = own_value(key, RETRY, value, RetriedMessage.FromString)
            retried[index] = again
            sender = address_of(again.caller) if again.caller else None
            value = again.value if again.HasField("value") else None
            argument = TypedValue(again.typename, value)
            invocations[index] = Invocation(sender, argument, again.trace or None)
    return retried


def _record(
    columns: Columns, rows: Sequence[int], retried: Mapping[int, RetriedMessage], index: int
) -> RecordOrigin | None:
    again = retried.get(index)
    if again is not None:
        return again.record if again.HasField("record") else None
    return columns.record(rows[index]) if rows else None


def _ingress_record(
    columns: Columns, rows: Sequence[int], retried: Mapping[int, RetriedMessage], index: int
) -> IngressRecord | None:
    origin = _record(columns, rows, retried, index)
    return None if origin is None else ingress_record(origin)


def visible_batch(routes: RecordRoutes, call: Call) -> InvocationBatch:
    """Return the batch that the function of a call gets: its records have the topics that transforms give them."""
    if not routes.change_topics:
        return call.batch
    return call.batch._replace(record=partial(_visible_record, routes, call))


def _visible_record(routes: RecordRoutes, call: Call, index: int) -> IngressRecord | None:
    origin = call.record(index)
    if origin is None:
        return None
    record, route = ingress_record(origin), routes.route_of(origin)
    if route is None or route.chain is None:
        return record
    return record._replace(topic=transformed_topic(route.chain, record))


def ingress_record(origin: RecordOrigin) -> IngressRecord:
    """Convert the origin of a record to the form in which users' functions get it."""
    return IngressRecord(
        origin.topic,
        origin.partition,
        origin.offset,
        from_epoch_millis(origin.timestamp),
        tuple(
            (header.key, header.value if header.HasField("value") else None)
            for header in origin.headers
        ),
    )


def postponed_messages(call: Call, first: int) -> Iterator[bytes]:
    """Yield the messages of a call from index ``first`` on as retry envelopes, the form in which they wait."""
    times = call.batch.times
    for index in range(first, len(call.batch.invocations)):
        sender, argument, trace = call.batch.invocations[index]
        again = call.retried.get(index)
        if again is not None:
            if trace is not None:  # that of the invocation, if the message was in a call
                again.trace = trace
            yield again.SerializeToString()
            continue
        original: Any = call.originals[index] if call.originals else argument
        typename, value = original  # None if the message has no value
        yield RetriedMessage(
            caller=address_key(sender) if sender else b"",
            typename=typename,
            value=value,
            record=call.record(index),
            trace=trace,
            encoded=call.was_encoded(index),
            event_time=None if times is None else times[index],
        ).SerializeToString()


def waiting_row(group: Group, row: int) -> bytes:
    """Return the message in a row of a group as a retry envelope, the form in which messages wait."""
    columns, typename, value = group.columns, group.columns.typename[row], group.columns.value[row]
    if typename == RETRY:
        envelope: bytes = value
        return envelope
    return RetriedMessage(
        caller=columns.caller[row] or b"",
        typename=typename,
        value=value,
        record=columns.record(row),
        trace=columns.trace[row],
        encoded=columns.is_encoded(row),
        event_time=columns.time(row),
    ).SerializeToString()


def retry_of(row: Row) -> bytes:
    """Return a message between functions as a retry envelope, the form in which messages wait."""
    _, caller, typename, value, trace, event_time = row
    return RetriedMessage(
        caller=caller, typename=typename, value=value, trace=trace, event_time=event_time
    ).SerializeToString()


def failed_message(failed: FailedInvocation, call: Call) -> FailedMessage:
    """Return the FailedMessage for the message of a call on which the function has failed."""
    sender, argument, trace = call.batch.invocations[failed.index]
    again = call.retried.get(failed.index)
    return FailedMessage(
        call.key,
        None if sender is None else address_key(sender),
        *(call.originals[failed.index] if call.originals else argument),
        call.record(failed.index),
        failed.error,
        failed.cause,
        1 if again is None else again.attempts + 1,
        failed.traceback,
        trace,
        call.was_encoded(failed.index),
        call.left,
        None if call.batch.times is None else call.batch.times[failed.index],
    )


def failed_row(group: Group, row: int, error: StatefunError) -> FailedMessage:
    """Return the FailedMessage for the message in a row of a group, which has failed with ``error``."""
    columns, cause = group.columns, type(error).__name__
    caller, typename, value = columns.caller[row], columns.typename[row], columns.value[row]
    if typename != RETRY:
        is_encoded = columns.is_encoded(row)
        record = columns.record(row)
        return FailedMessage(
            group.key,
            caller,
            typename,
            value,
            record,
            error,
            cause,
            trace=columns.trace[row],
            is_encoded=is_encoded,
            event_time=columns.time(row),
        )
    return failed_again(group, value, error)


def failed_again(group: Group, envelope: bytes, error: StatefunError) -> FailedMessage:
    """Return the FailedMessage for a retry envelope to a group's address, which has failed with ``error``."""
    again = RetriedMessage.FromString(envelope)
    return FailedMessage(
        group.key,
        again.caller or None,
        again.typename,
        again.value if again.HasField("value") else None,
        again.record if again.HasField("record") else None,
        error,
        type(error).__name__,
        again.attempts + 1,
        trace=again.trace or None,
        is_encoded=again.encoded,
        event_time=again.event_time if again.HasField("event_time") else None,
    )
