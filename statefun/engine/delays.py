# SPDX-License-Identifier: Apache-2.0
"""The reserved functions of timers: they delay, cancel and release messages.

A delayed message is sent to its bucket, which keeps it until the bucket's tick comes, and then sends it to
its target. A cancellable message waits at the address of its token, whose id consists of the token and
the sender's id; the bucket only keeps a request to release the message. So a cancellation needs the token
only. A cancellation is in time if it was sent before the message became due: it reaches the token's address
one micro-batch after it was sent, and the request to release the message reaches this address at least two
micro-batches after the message became due.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import attrs

from statefun.engine.buckets import (
    DELAYED,
    RELEASED,
    TOGETHER,
    add_targets,
    release,
    run_bucket,
    send,
    targets_of,
)
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.row import Row
from statefun.engine.wheel import (
    BUCKET,
    LATEST,
    TIMERS_NAMESPACE,
    bucket_before,
    bucket_for,
    bucket_key,
    event_bucket,
    event_due,
    token_key,
)
from statefun.protocol.runtime_pb2 import Bucket, CancellableMessage
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.types import TypedValue

WAKE_UP = f"{TIMERS_NAMESPACE}/wake-up"
"""The type of a wake-up: a message to an address whose values may have expired, whose messages wait, or whose
state is only kept until messages that it has sent are delivered."""
_CANCELLABLE = f"{TIMERS_NAMESPACE}/cancellable"
_RELEASE = f"{TIMERS_NAMESPACE}/release"
_CANCEL = f"{TIMERS_NAMESPACE}/cancel"
_ID_BYTES = 8


@attrs.frozen
class Due:
    """When a message is due, and its place among messages that are due at the same time.

    Times are in milliseconds since the epoch.
    """

    time: int
    now: int
    """The present time: the time from now until the message is due decides in which bucket it waits."""
    sequence: int
    """A number that is larger than those of the sender's earlier delayed messages."""
    in_event_time: bool = False
    """Whether both times are event times, so that the message is due when the watermark has come to ``time``."""

    @classmethod
    def at_event_time(
        cls, when: int, watermark: int | None, cause: int | None, sequence: int
    ) -> Due:
        """Return when a message is due if a function sends it for an event time.

        Args:
            when: the event time.
            watermark: the watermark; None if there is none.
            cause: the event time of the message whose invocation sends the delayed one; None if it has none.
            sequence: a number that is larger than those of the sender's earlier delayed messages.
        """
        time = event_due(when)
        now = next((each for each in (watermark, cause) if each is not None), time)
        return cls(time, min(now, time), sequence, in_event_time=True)


def send_at(due: Due, row: Row, effects: Effects) -> None:
    """Send a delayed message, to be delivered when it is due, but at ``LATEST`` if it is due even later."""
    entry = _entry(due, row)
    place = event_bucket if due.in_event_time else bucket_before
    _keep(place(entry.due, due.now, row.target), entry, effects)


def _entry(due: Due, row: Row) -> Entry:
    """Return a delayed message; one that is due in event time has its due time as its event time."""
    entry = Entry(due=min(due.time, LATEST), sequence=due.sequence, **row._asdict())
    if due.in_event_time:
        entry.in_event_time, entry.event_time = True, due.time
    return entry


def _keep(bucket: int, entry: Entry, effects: Effects) -> None:
    """Send a delayed message to the bucket that keeps it."""
    effects.buckets.add(bucket)
    content = Bucket(messages=[entry]).SerializeToString()
    send(Row(bucket_key(bucket), entry.caller, DELAYED, content), effects)


def send_cancellable(due: Due, row: Row, token: str, effects: Effects) -> None:
    """Send a delayed message, which addresses with the caller's id can cancel by ``token`` until it is due."""
    address = token_key(row.caller, token)
    cancellable = CancellableMessage(
        token=token,
        id=os.urandom(_ID_BYTES),
        message=_entry(due, row),
    )
    send(Row(address, row.caller, _CANCELLABLE, cancellable.SerializeToString()), effects)
    cancellable.ClearField("message")
    release_row = Row(address, row.caller, _RELEASE, cancellable.SerializeToString())
    send_at(due, release_row, effects)


def cancel(caller: bytes, token: str, effects: Effects) -> None:
    """Cancel the delayed message that an address with the caller's id has sent with ``token``, if any."""
    send(Row(token_key(caller, token), caller, _CANCEL, token.encode()), effects)


def without_cancelled(
    delayed: Iterable[DelayedMessage | Cancellation],
) -> list[DelayedMessage | Cancellation]:
    """Remove messages that the same invocation batch cancels later, together with their cancellations.

    A message is removed only if the batch has cancelled the message's token before it sends the message: the
    token is free then. With any other token, an older message may be waiting, and only the token's address
    knows that.
    """
    remaining: dict[int, DelayedMessage | Cancellation] = {}
    free: dict[str, int | None] = {}  # by token: the message that uses it since it was free
    for index, each in enumerate(delayed):
        token = each.cancellation_token
        if isinstance(each, DelayedMessage):
            remaining[index] = each
            if free.pop(token, index) is None:
                free[token] = index
        elif token in free:
            user = free[token]
            if user is not None:
                del remaining[user]
            free[token] = None
        else:
            remaining[index] = each
            free[token] = None
    return list(remaining.values())


def send_wake_ups(effects: Effects) -> None:
    """Send the collected wake-ups in event time to their buckets; one message holds many with the same due time."""
    for (bucket, (due, typename, step, _)), keys in effects.wake_ups.items():
        effects.buckets.add(bucket)
        key = bucket_key(bucket)
        targets = [*keys.items()]
        for first in range(0, len(targets), TOGETHER):
            content = Bucket()
            wake_ups = content.wake_ups.add(due=due, typename=typename, step=step)
            add_targets(wake_ups, targets[first : first + TOGETHER])
            send(Row(key, key, DELAYED, content.SerializeToString()), effects)
    effects.wake_ups.clear()
    effects.wake_ups_size = 0


def schedule_wake_up(group: Group, now: int, effects: Effects) -> None:
    """Send a bucket the next wake-up for the group's address, unless the address needs none or one is on its way."""
    due = group.values.next_wake_up(now)
    if due is not None:
        send_wake_up(group.key, due, effects)


def send_wake_up(key: bytes, due: int, effects: Effects) -> None:
    """Send a wake-up with a due time, in milliseconds since the epoch, to the address with a key."""
    due_at = min(due, LATEST)
    row = Row(key, key, WAKE_UP, b"%d" % due)
    _keep(bucket_for(due_at, key), Entry(due=due_at, **row._asdict()), effects)


def wake_up_at_once(group: Group, effects: Effects) -> None:
    """Send the group's address a wake-up, which it gets in the next micro-batch."""
    send(Row(group.key, group.key, WAKE_UP, b"%d" % LATEST), effects)


def wake_up_time(value: bytes) -> int:
    """Return the due time that the value of a wake-up holds, in milliseconds since the epoch."""
    return int(value)


def is_wake_up(typename: str, value: bytes) -> bool:
    """Return whether a message in the outbox is a wake-up, sent directly or released by a bucket."""
    if typename == WAKE_UP:
        return True
    return typename == RELEASED and Entry.FromString(value).typename == WAKE_UP


OnConflict = Callable[[Row, str, Effects], None]
"""Applies the failure policy to a delayed message whose token is in use."""


def run_reserved(
    name: str, group: Group, effects: Effects, begun: int, on_conflict: OnConflict
) -> None:
    """Handle the messages to a bucket, or to the address of a token.

    Args:
        name: the name of the address's function.
        group: the messages and the state of the address.
        effects: collects the messages that the address sends.
        begun: the driver's time when the micro-batch began, in milliseconds since the epoch.
        on_conflict: called with a delayed message whose token is in use, and the token.
    """
    if name == BUCKET:
        run_bucket(group, effects)
    else:
        _run_token(group, effects, begun, on_conflict)


def delayed_messages(typename: str, value: bytes) -> Iterator[Entry]:
    """Yield the users' delayed messages that a bucket or the address of a token keeps or receives.

    Args:
        typename: the typename of a value in the state of the bucket or address, or of a message to it.
        value: this value, or the value of the message.
    """
    if typename == DELAYED:
        for message in messages_in(value):
            if message.typename not in {_RELEASE, WAKE_UP}:
                yield message
    elif typename == _CANCELLABLE:
        yield CancellableMessage.FromString(value).message


def messages_in(bucket: bytes) -> Iterator[Entry]:
    """Yield all messages of a serialized ``Bucket``, also the engine's own, each in the form of a delayed message."""
    content = Bucket.FromString(bucket)
    yield from content.messages
    for each in content.wake_ups:
        due = each.due
        for target, trace in targets_of(each):
            yield Entry(
                due=due,
                target=target,
                caller=target,
                typename=each.typename,
                trace=trace or None,
                event_time=due,
                in_event_time=True,
            )


def token_of(typename: str, value: bytes) -> str:
    """Return the token of a cancellable message; empty for a value of another type.

    Args:
        typename: the typename of ``value``.
        value: a value in the state of a token's address, or of a message to that address.
    """
    return CancellableMessage.FromString(value).token if typename == _CANCELLABLE else ""


def names_tokens(content: bytes) -> bool:
    """Return whether :func:`released_tokens` may yield any keys for the serialized state of a bucket."""
    return _RELEASE.encode() in content


def released_tokens(typename: str, value: bytes) -> Iterator[bytes]:
    """Yield the keys of the addresses of tokens whose cancellable messages a bucket will release.

    Args:
        typename: the typename of a value in the state of a bucket, or of a message to it.
        value: this value, or the value of the message.
    """
    if typename == DELAYED:
        for message in Bucket.FromString(value).messages:
            if message.typename == _RELEASE:
                yield message.target


def _run_token(group: Group, effects: Effects, begun: int, on_conflict: OnConflict) -> None:
    columns, values = group.columns, group.values.values
    for row in range(group.start, group.end):
        typename, value = columns.typename[row], columns.value[row]
        if typename == _CANCEL:
            if value.decode() in values:
                group.values.apply({value.decode(): None})
            continue
        request = CancellableMessage.FromString(value)
        stored_value = values.get(request.token)
        waiting_message = (
            CancellableMessage.FromString(stored_value.value) if stored_value else None
        )
        if typename == _CANCELLABLE:
            if waiting_message and _is_pending(waiting_message.message, begun, effects):
                on_conflict(_row(request.message), request.token, effects)
                continue
            if waiting_message:  # it is due, and the request to release it is on the way
                group.values.apply({waiting_message.id.hex(): stored_value})
            group.values.apply({request.token: TypedValue(_CANCELLABLE, value)})
        elif waiting_message and waiting_message.id == request.id:
            _release(request.token, group, effects)
        elif request.id.hex() in values:
            _release(request.id.hex(), group, effects)


def _is_pending(message: Entry, begun: int, effects: Effects) -> bool:
    return message.due > (effects.watermark if message.in_event_time else begun)


def _release(name: str, group: Group, effects: Effects) -> None:
    cancellable = CancellableMessage.FromString(group.values.values[name].value)
    release(cancellable.message, effects)
    group.values.apply({name: None})


def _row(message: Entry) -> Row:
    trace = message.trace or None
    event_time = message.event_time if message.HasField("event_time") else None
    return Row(message.target, message.caller, message.typename, message.value, trace, event_time)
