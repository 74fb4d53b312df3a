# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes the results of long calls, which are sent to the called addresses as messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import cast

from statefun.engine.troubles import put_trouble, read_trouble
from statefun.protocol.runtime_pb2 import CallResult
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import InvocationError, restored
from statefun.sdk.invocation_batch import (
    FailedInvocation,
    InvocationResult,
    Postponed,
)
from statefun.sdk.message import Message
from statefun.sdk.printable import printable, without_surrogates
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

_MOST_CHARACTERS = 10_000
"""The largest number of characters of an error's text; a longer text is cut."""
_MICROSECOND = timedelta(microseconds=1)
_LONGEST = 2**63 - 1


def encoded_result(attempt: str, result: InvocationResult, ended: int) -> bytes:
    """Encode the result of a call.

    Args:
        attempt: the name of the call.
        result: the result of the call; its egress records are records for Kafka.
        ended: when the call has ended, in milliseconds since the epoch.
    """
    stored = CallResult(attempt=attempt, ended=ended)
    for name, value in result.state_mutations.items():
        change = stored.changes.add(name=name)
        if value is not None:
            change.typename, change.value = value
    stored.messages.extend(map(_sent, result.messages))
    for delayed in result.delayed:
        added = stored.delayed.add(token=delayed.cancellation_token)
        if isinstance(delayed, DelayedMessage):
            added.delay = _microseconds(delayed.delay)
            added.message.CopyFrom(_sent(delayed.message))
            if delayed.due is not None:
                added.due = delayed.due
    for record in result.egress_messages:
        stored.records.add(egress=record.typename, content=record.typed_value.value)
    for failed in result.failures:
        error = failed.error
        stored.failures.add(
            index=failed.index,
            code=error.code,
            message=printable(error.message, _MOST_CHARACTERS, keep="\n"),
            cause=failed.cause,
            traceback=printable(failed.traceback, keep="\n"),
            way_out=error.way_out,
        )
    for name, after, on_call in result.expiring:
        stored.expiring.add(name=name, after=_microseconds(after), on_call=on_call)
    if result.postponed is not None:
        first, wait, is_down, problem, suspect_of = result.postponed
        stored.postponed.first, stored.postponed.wait = first, _microseconds(wait)
        stored.postponed.is_down, stored.postponed.problem = is_down, without_surrogates(problem)
        stored.postponed.suspect_of = suspect_of
    put_trouble(stored.trouble, result.trouble)
    return stored.SerializeToString()


def _microseconds(duration: timedelta) -> int:
    """Return a duration in microseconds, 292,000 years at most: an int64 holds no more."""
    return min(duration // _MICROSECOND, _LONGEST)


def decoded_result(stored: CallResult, now: int) -> InvocationResult:
    """Decode the result of a call.

    Args:
        stored: the encoded result.
        now: the present time, in milliseconds since the epoch. The time since the call's end is subtracted
            from the delays of delayed messages.
    """
    since = timedelta(milliseconds=max(now - stored.ended, 0))
    postponed = None
    if stored.HasField("postponed"):
        rest = stored.postponed
        wait = rest.wait * _MICROSECOND
        postponed = Postponed(rest.first, wait, rest.is_down, rest.problem, rest.suspect_of)
    return InvocationResult(
        _changes(stored),
        [_message(sent) for sent in stored.messages],
        [_delayed(delayed, since) for delayed in stored.delayed],
        [_record(record) for record in stored.records],
        [_failed(failed) for failed in stored.failures],
        [
            Expiration(each.name, each.after * _MICROSECOND, each.on_call)
            for each in stored.expiring
        ],
        postponed,
        read_trouble(stored.trouble),
    )


def _changes(stored: CallResult) -> Mapping[str, TypedValue | None]:
    return {
        each.name: TypedValue(each.typename, each.value) if each.HasField("value") else None
        for each in stored.changes
    }


def _sent(message: Message) -> CallResult.Sent:
    typename, value = message.typed_value
    return CallResult.Sent(
        typename=message.target_typename,
        id=message.target_id,
        value_typename=typename,
        value=value,
        trace=message.trace,
        event_time=message.event_time,
    )


def _message(sent: CallResult.Sent) -> Message:
    message = Message(sent.typename, sent.id, TypedValue(sent.value_typename, sent.value))
    message.trace = sent.trace if sent.HasField("trace") else None
    message.event_time = sent.event_time if sent.HasField("event_time") else None
    return message


def _delayed(stored: CallResult.Delayed, since: timedelta) -> DelayedMessage | Cancellation:
    if not stored.HasField("message"):
        return Cancellation(stored.token)
    delay = max(stored.delay * _MICROSECOND - since, timedelta(0))
    due = stored.due if stored.HasField("due") else None
    return DelayedMessage(delay, _message(stored.message), stored.token, due)


def _record(stored: CallResult.Record) -> EgressMessage:
    value = TypedValue(KAFKA_RECORD_TYPENAME, stored.content)
    return KafkaEgressMessage.from_typed_value(stored.egress, value)


def _failed(stored: CallResult.Failed) -> FailedInvocation:
    error = cast("InvocationError", restored(stored.code, stored.message))
    error.way_out = stored.way_out
    return FailedInvocation(stored.index, error, stored.cause, stored.traceback)
