# SPDX-License-Identifier: Apache-2.0
"""The reserved function of timer buckets: it keeps delayed messages until a tick, and then sends them.

At its tick, a bucket releases the messages that are due: it sends them to their targets. A coarse bucket
also holds messages that are due only some time after its tick: it sends these messages to finer buckets,
whose ticks come later.

Each addition to a bucket changes the bucket's state, and Spark writes the whole state again. So a full
bucket moves its messages to a new chunk: a separate bucket with the same tick, whose state is written once.

All buckets that get a tick in a micro-batch, also chunks and coarse buckets, release their messages in
this micro-batch. The feedback source delivers all released messages to a target together,
ordered by their due time, and then by the order in which they were sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.row import Row
from statefun.engine.wheel import (
    BUCKET,
    CHUNKS,
    TIMERS_NAMESPACE,
    bucket_before,
    bucket_key,
    bucket_of,
    chunk_of,
    event_bucket,
    is_chunk,
)
from statefun.protocol.runtime_pb2 import Bucket, WakeUps
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.sdk.types import TypedValue

TICK = f"{TIMERS_NAMESPACE}/tick"
"""The type of a tick: the message that a bucket gets when it is due.

The value of a tick is the time up to which messages are due, in milliseconds since the epoch: of the clock, or of
event time. It may be later than the time at which the bucket is due."""
DELAYED = f"{TIMERS_NAMESPACE}/delayed"
"""The type of a message that adds delayed messages to a bucket, and of the bucket's state."""
RELEASED = f"{TIMERS_NAMESPACE}/released"
"""The type of a released message in the outbox; the feedback source delivers the original message."""
_CHUNKS = "chunks"
"""The name and type of the value that holds the number of chunks which a bucket has had."""
_ARRIVING = "arriving-"
"""The prefix of the names of values that hold new messages, while the bucket gets further rows.

Spark may give the rows of a bucket in several parts. The messages of each part are kept in a value of
their own: a single value would be copied once for each part."""
_FULL_BYTES = 8 * 1024
"""The largest state of a bucket, in bytes; the messages of a larger state move to chunks."""
_CHUNK_BYTES = 64 * 1024
"""The size at which a chunk is complete, in bytes: further messages go to the next chunk."""

_WAKE_UP_BYTES = 100
"""About how many bytes a delayed message without content takes; a wake-up takes fewer."""
TOGETHER = -(-_CHUNK_BYTES // _WAKE_UP_BYTES)
"""The largest number of wake-ups in one message to a bucket."""


def send(row: Row, effects: Effects) -> None:
    """Send a message to its target without a delay; until its delivery, it holds the watermark at its event time."""
    effects.messages.append(row)
    if row.event_time is not None:
        effects.hold(row.event_time, row.target)


def release(message: Entry, effects: Effects) -> None:
    """Send a delayed message to its target; its due time and sequence number decide its place in the order."""
    event_time = message.event_time if message.HasField("event_time") else None
    content = message.SerializeToString()
    send(Row(message.target, message.caller, RELEASED, content, None, event_time), effects)


def run_bucket(group: Group, effects: Effects) -> None:
    """Handle the messages that a bucket, or a chunk of a bucket, has received."""
    values = group.values.values
    part_names = [name for name in values if name.startswith(_ARRIVING)]
    arrivals, now = _arrivals(group)
    if not (group.last or now is not None):
        content = TypedValue(DELAYED, b"".join(arrivals))
        group.values.apply({f"{_ARRIVING}{len(part_names)}": content})
        return
    stored_value, chunks = values.get(BUCKET), values.get(_CHUNKS)
    # Concatenated Protobuf messages are a message with the entries of all.
    pieces = [values[name].value for name in part_names] + arrivals
    if stored_value:
        pieces.insert(0, stored_value.value)
    state = stored_value
    if now is not None:
        _deal(group.key, pieces, now, effects)
        state = chunks = None
    elif sum(map(len, pieces)) > _FULL_BYTES and not is_chunk(group.key):
        first = int(chunks.value) if chunks else 0
        chunks = TypedValue(_CHUNKS, b"%d" % _move(group.key, pieces, first, effects))
        state = None
    elif pieces:
        state = TypedValue(DELAYED, b"".join(pieces))
    group.values.apply({BUCKET: state, _CHUNKS: chunks, **dict.fromkeys(part_names)})


def _arrivals(group: Group) -> tuple[list[bytes], int | None]:
    """Return the delayed messages in a bucket's rows, and the time that its tick holds; None if there is no tick."""
    arrivals: list[bytes] = []
    now = None
    columns = group.columns
    for row in range(group.start, group.end):
        typename, value = columns.typename[row], columns.value[row]
        if typename == DELAYED:
            arrivals.append(value)
        elif typename == TICK:
            now = int(value)
    return arrivals, now


def _deal(key: bytes, pieces: Iterable[bytes], now: int, effects: Effects) -> None:
    """Release the messages of a bucket that are due at ``now``, and send the others to finer buckets."""
    later: defaultdict[int, Bucket] = defaultdict(Bucket)
    for piece in pieces:
        content = Bucket.FromString(piece)
        for message in content.messages:
            if message.due <= now:
                release(message, effects)
            else:
                place = event_bucket if message.in_event_time else bucket_before
                bucket = place(message.due, now, message.target)
                later[bucket].messages.append(message)
        for wake_ups in content.wake_ups:
            if wake_ups.due <= now:
                _release_wake_ups(wake_ups, effects)
            else:
                _sort_wake_ups(wake_ups, now, later)
    for bucket, content in later.items():
        send(Row(bucket_key(bucket), key, DELAYED, content.SerializeToString()), effects)
    effects.buckets |= later.keys()


def targets_of(wake_ups: WakeUps) -> Iterator[tuple[bytes, str]]:
    """Yield each target of some wake-ups: its key, and its trace-context headers, which may be empty."""
    return zip(wake_ups.targets, wake_ups.traces or repeat(""))  # noqa: B905 - the latter has no end


def add_targets(wake_ups: WakeUps, targets: Sequence[tuple[bytes, str]]) -> None:
    """Add targets, as :func:`targets_of` yields them, to ``wake_ups``, which must not have any targets yet."""
    wake_ups.targets.extend([target for target, _ in targets])
    traces = [trace for _, trace in targets]
    if any(traces):
        wake_ups.traces.extend(traces)


def _release_wake_ups(wake_ups: WakeUps, effects: Effects) -> None:
    """Send wake-ups to their targets, without the wrapper of other released messages: their order does not matter."""
    due, typename = wake_ups.due, wake_ups.typename
    for target, trace in targets_of(wake_ups):
        send(Row(target, target, typename, b"", trace or None, due), effects)


def _sort_wake_ups(wake_ups: WakeUps, now: int, later: defaultdict[int, Bucket]) -> None:
    """Add wake-ups that are due after ``now`` to finer buckets."""
    due, typename, step = wake_ups.due, wake_ups.typename, wake_ups.step
    targets: defaultdict[int, list[tuple[bytes, str]]] = defaultdict(list)
    for each in targets_of(wake_ups):
        targets[event_bucket(due, now, each[0], step)].append(each)
    for bucket, own in targets.items():
        add_targets(later[bucket].wake_ups.add(due=due, typename=typename, step=step), own)


def _move(key: bytes, pieces: Iterable[bytes], first: int, effects: Effects) -> int:
    """Send all messages of a bucket to new chunks, numbered from ``first``; return the next free number."""
    for number, content in enumerate(_joined(pieces), first):
        chunk = chunk_of(bucket_of(key), number % CHUNKS)
        send(Row(bucket_key(chunk), key, DELAYED, content), effects)
        effects.buckets.add(chunk)
        first = number + 1
    return first


def _weight(piece: bytes) -> int:
    """Return the size of a part of a bucket's state in bytes, where a wake-up counts as much as a delayed message.

    So a chunk, whose messages are delivered together, holds no more wake-ups than it could hold delayed messages.
    """
    if len(piece) <= _WAKE_UP_BYTES:
        return len(piece)
    wake_ups = sum(len(each.targets) for each in Bucket.FromString(piece).wake_ups)
    return max(len(piece), wake_ups * _WAKE_UP_BYTES)


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join byte strings to larger ones, each of ``_CHUNK_BYTES`` or little more; the last may be smaller."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += _weight(piece)
        if size >= _CHUNK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)
