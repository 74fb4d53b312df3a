# SPDX-License-Identifier: Apache-2.0
"""The reserved function of timer buckets: it keeps delayed messages until they are due.

Each addition to a bucket changes its state, and the whole state is written again. So a bucket
that has grown large is split: its messages, and all later ones, move on to its parts. A part is a
separate bucket, and gets its own tick.

All buckets that get a tick in a micro-batch release their messages in this micro-batch, whether
they are split or not. The feedback source delivers all of these messages to a target together,
ordered by their due time, and then by the order in which they were sent.
"""

from __future__ import annotations

from collections import defaultdict

from statefun.protocol.runtime_pb2 import Bucket
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.runtime.dispatch.groups import Group, Row
from statefun.runtime.rows.effects import Effects
from statefun.runtime.timers.wheel import (
    BUCKET,
    NAMESPACE,
    PARTS,
    bucket_key,
    bucket_of,
    is_part,
    part_bucket,
    part_of,
)
from statefun.sdk.types import TypedValue

TICK = f"{NAMESPACE}/tick"
"""The type of the tick that the feedback source sends to a bucket that is due."""
DELAYED = f"{NAMESPACE}/delayed"
"""The type of messages to a bucket that are to wait in it, and of its state."""
RELEASED = f"{NAMESPACE}/released"
"""The type of a released message, until the feedback source delivers the original."""
_SPLIT = f"{NAMESPACE}/split"
"""The type of the state of a bucket that was split."""
_ARRIVING = "arriving-"
"""What the names of what has arrived begin with, while more is to come in the micro-batch.

Each chunk has its own: joined to those before, it would be copied once for every chunk behind it."""
_FORGET = f"{NAMESPACE}/forget"
"""The type of a message that a split bucket of an earlier version sends itself after its tick."""
_FULL_BYTES = 64 * 1024
"""The largest state of a bucket, in bytes; a larger bucket is split."""


def send(row: Row, effects: Effects) -> None:
    """Send a message now."""
    effects.messages.append(row)


def release(message: Entry, effects: Effects) -> None:
    """Send a message that has waited, with its place in the order of such messages."""
    send(Row(message.target, message.caller, RELEASED, message.SerializeToString()), effects)


def run_bucket(group: Group, effects: Effects) -> None:
    """Handle the messages of a bucket, or of a part of one."""
    rows = slice(group.start, group.end)
    typenames, held = group.columns.typename[rows], group.values.values
    before = [name for name in held if name.startswith(_ARRIVING)]
    # Concatenated Protobuf messages are a message with the entries of all.
    arrived = b"".join(group.columns.value[rows])
    is_due = TICK in typenames or _FORGET in typenames
    if not (group.last or is_due):
        group.values.apply({f"{_ARRIVING}{len(before)}": TypedValue(DELAYED, arrived)})
        return
    stored = held.get(BUCKET)
    is_split = stored is not None and stored.typename == _SPLIT
    pieces = [held[name].value for name in before] + [arrived]
    if stored and not is_split:
        pieces.insert(0, stored.value)
    size = sum(map(len, pieces))
    state = stored
    if is_due:
        for piece in pieces:
            for message in Bucket.FromString(piece).messages:
                release(message, effects)
        if stored and is_split:
            _tick_parts(group.key, int.from_bytes(stored.value, "big"), effects)
        state = None
    elif is_split or (size > _FULL_BYTES and not is_part(group.key)):
        for piece in pieces:
            _divide(group.key, piece, effects)
        state = stored if is_split else TypedValue(_SPLIT, b"")
    elif size:
        state = TypedValue(DELAYED, b"".join(pieces))
    group.values.apply({BUCKET: state, **dict.fromkeys(before)})


def _divide(key: bytes, content: bytes, effects: Effects) -> None:
    """Pass the new messages of a split bucket on to its parts."""
    entries: defaultdict[int, Bucket] = defaultdict(Bucket)
    for message in Bucket.FromString(content).messages:
        part = part_of(message.target, message.sequence)
        entries[part_bucket(bucket_of(key), part)].messages.append(message)
    for number, bucket in entries.items():
        send(Row(bucket_key(number), key, DELAYED, bucket.SerializeToString()), effects)
    effects.buckets |= entries.keys()


def _tick_parts(key: bytes, parts: int, effects: Effects) -> None:
    """Send ticks to parts that get none themselves, because an earlier version made them.

    Args:
        key: the key of the bucket.
        parts: a bit for each part that holds messages.
        effects: takes the ticks.
    """
    for part in range(PARTS):
        if parts >> part & 1:
            to = bucket_key(part_bucket(bucket_of(key), part))
            send(Row(to, key, TICK, b""), effects)
