# SPDX-License-Identifier: Apache-2.0
"""The reserved functions of timers: they delay, cancel and release messages.

A delayed message is a message to its bucket, which keeps it until the bucket's tick comes, and then
sends it on. A cancellable message waits at an address of its token and the sender's id; the bucket
gets a request to release it instead. So a cancellation needs nothing
but the token, and is in time if it was sent before the message became due: the request reaches
the token at least two micro-batches after that, and the cancellation one after it was sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import attrs

from statefun.engine.address_keys import address_of
from statefun.engine.buckets import DELAYED, RELEASED, release, run_bucket, send
from statefun.engine.effects import Effects
from statefun.engine.groups import Group, Row
from statefun.engine.wheel import (
    BUCKET,
    LATEST,
    TIMERS_NAMESPACE,
    bucket_before,
    bucket_for,
    bucket_key,
    token_key,
)
from statefun.protocol.runtime_pb2 import Bucket, CancellableMessage
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.sdk.context import Cancellation, DelayedMessage, token_in_use
from statefun.sdk.errors import FunctionError
from statefun.sdk.types import TypedValue

WAKE_UP = f"{TIMERS_NAMESPACE}/wake-up"
"""The type of the wake-up to an address whose values may have expired."""
_CANCELLABLE = f"{TIMERS_NAMESPACE}/cancellable"
_RELEASE = f"{TIMERS_NAMESPACE}/release"
_CANCEL = f"{TIMERS_NAMESPACE}/cancel"
_ID_BYTES = 8


@attrs.frozen
class Due:
    """When a message is due, and in which order.

    Times are in milliseconds since the epoch.
    """

    time: int
    now: int
    """The present time: how long a message waits decides where it does."""
    sequence: int
    """Larger than the numbers of the sender's earlier messages."""


def send_at(due: Due, row: Row, effects: Effects) -> None:
    """Send a message when it is due, or at the end of time."""
    time = min(due.time, LATEST)
    entry = Entry(due=time, sequence=due.sequence, **row._asdict())
    _keep(bucket_before(time, due.now, row.target), entry, effects)


def _keep(bucket: int, entry: Entry, effects: Effects) -> None:
    """Let a message wait in a bucket."""
    effects.buckets.add(bucket)
    content = Bucket(messages=[entry]).SerializeToString()
    send(Row(bucket_key(bucket), entry.caller, DELAYED, content), effects)


def send_cancellable(due: Due, row: Row, token: str, effects: Effects) -> None:
    """Send a message when it is due unless the caller's id cancels ``token`` before."""
    address = token_key(row.caller, token)
    held = CancellableMessage(
        token=token,
        id=os.urandom(_ID_BYTES),
        message=Entry(due=due.time, sequence=due.sequence, **row._asdict()),
    )
    send(Row(address, row.caller, _CANCELLABLE, held.SerializeToString()), effects)
    held.ClearField("message")
    release_row = Row(address, row.caller, _RELEASE, held.SerializeToString())
    send_at(due, release_row, effects)


def cancel(caller: bytes, token: str, effects: Effects) -> None:
    """Drop the message that waits with ``token`` of the caller's id, if there is one."""
    send(Row(token_key(caller, token), caller, _CANCEL, token.encode()), effects)


def without_cancelled(
    delayed: Iterable[DelayedMessage | Cancellation],
) -> list[DelayedMessage | Cancellation]:
    """Leave out messages that the same invocation batch cancels, so that they are never sent.

    This is safe only for a token that the batch has cancelled before, and so is free: others may be
    in conflict with an older message, which only the token's address knows.
    """
    left: dict[int, DelayedMessage | Cancellation] = {}
    free: dict[str, int | None] = {}  # tokens, with the message that has taken it since
    for index, each in enumerate(delayed):
        token = each.cancellation_token
        if isinstance(each, DelayedMessage):
            left[index] = each
            if free.pop(token, index) is None:
                free[token] = index
        elif token in free:
            taken = free[token]
            if taken is not None:
                del left[taken]
            free[token] = None
        else:
            left[index] = each
            free[token] = None
    return list(left.values())


def schedule_wake_up(group: Group, now: int, effects: Effects) -> None:
    """Schedule a wake-up for when the group's next value has expired, unless one is on its way."""
    due = group.values.next_wake_up(now)
    if due is not None:
        due_at = min(due, LATEST)
        row = Row(group.key, group.key, WAKE_UP, b"%d" % due)
        _keep(bucket_for(due_at, group.key), Entry(due=due_at, **row._asdict()), effects)


def wake_up_at_once(group: Group, effects: Effects) -> None:
    """Wake the group's address up in the next micro-batch."""
    send(Row(group.key, group.key, WAKE_UP, b"%d" % LATEST), effects)


def wake_up_time(value: bytes) -> int:
    """Return the due time of a wake-up, in milliseconds since the epoch."""
    return int(value)


def is_wake_up(typename: str, value: bytes) -> bool:
    """Return whether a message in the outbox is a wake-up, perhaps on its way from its bucket."""
    if typename == WAKE_UP:
        return True
    return typename == RELEASED and Entry.FromString(value).typename == WAKE_UP


OnConflict = Callable[[Row, FunctionError, Effects], None]
"""Called with a delayed message whose token is in use."""


def run_reserved(
    name: str, group: Group, effects: Effects, begun: int, on_conflict: OnConflict
) -> None:
    """Handle the messages of a group by a reserved function.

    Args:
        name: the name of the function.
        group: the messages to it.
        effects: takes the messages that it sends.
        begun: the driver's time when the micro-batch began, in milliseconds since the epoch.
        on_conflict: applies the failure policy to a message whose token is in use.
    """
    if name == BUCKET:
        run_bucket(group, effects)
    else:
        _run_token(group, effects, begun, on_conflict)


def delayed_messages(typename: str, value: bytes) -> Iterator[Entry]:
    """Yield the delayed messages in a value of a reserved function's message or state."""
    if typename == DELAYED:
        for message in Bucket.FromString(value).messages:
            if message.typename not in {_RELEASE, WAKE_UP}:
                yield message
    elif typename == _CANCELLABLE:
        yield CancellableMessage.FromString(value).message


def _run_token(group: Group, effects: Effects, begun: int, on_conflict: OnConflict) -> None:
    columns, held = group.columns, group.values.values
    for row in range(group.start, group.end):
        typename, value = columns.typename[row], columns.value[row]
        if typename == _CANCEL:
            if value.decode() in held:
                group.values.apply({value.decode(): None})
            continue
        asked = CancellableMessage.FromString(value)
        present = held.get(asked.token)
        waiting = CancellableMessage.FromString(present.value) if present else None
        if typename == _CANCELLABLE:
            if waiting and waiting.message.due > begun:
                sender = address_of(asked.message.caller)
                on_conflict(_row(asked.message), token_in_use(sender, asked.token), effects)
                continue
            if waiting:  # it is due, and waits for its release, which is on the way
                group.values.apply({waiting.id.hex(): present})
            group.values.apply({asked.token: TypedValue(_CANCELLABLE, value)})
        elif waiting and waiting.id == asked.id:
            _release(asked.token, group, effects)
        elif asked.id.hex() in held:
            _release(asked.id.hex(), group, effects)


def _release(name: str, group: Group, effects: Effects) -> None:
    held = CancellableMessage.FromString(group.values.values[name].value)
    release(held.message, effects)
    group.values.apply({name: None})


def _row(message: Entry) -> Row:
    trace = message.trace or None
    return Row(message.target, message.caller, message.typename, message.value, trace)
