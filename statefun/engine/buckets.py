# SPDX-License-Identifier: Apache-2.0
"""The reserved function of timer buckets: it keeps messages until a tick, and then passes them on.

At its tick, a bucket releases what is due. What is not due yet has waited in a coarse bucket, and goes
to a finer one, which is due later.

Each addition to a bucket changes its state, and the whole state is written again. So what a full
bucket holds moves on to a new chunk, which is written once: a separate bucket with the same tick.

All buckets that get a tick in a micro-batch release their messages in this micro-batch, chunks and
coarse buckets as well. The feedback source delivers all of these messages to a target together,
ordered by their due time, and then by the order in which they were sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from statefun.engine.effects import Effects
from statefun.engine.groups import Group, Row
from statefun.engine.wheel import (
    BUCKET,
    CHUNKS,
    TIMERS_NAMESPACE,
    bucket_before,
    bucket_key,
    bucket_of,
    chunk_of,
    is_chunk,
)
from statefun.protocol.runtime_pb2 import Bucket
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.sdk.types import TypedValue

TICK = f"{TIMERS_NAMESPACE}/tick"
"""The type of the message that comes to a bucket that is due: up to when its messages are due.

That is in milliseconds since the epoch, and may be later than the time of the bucket's own tick."""
DELAYED = f"{TIMERS_NAMESPACE}/delayed"
"""The type of messages to a bucket that are to wait in it, and of its state."""
RELEASED = f"{TIMERS_NAMESPACE}/released"
"""The type of a released message, until the feedback source delivers the original."""
_CHUNKS = "chunks"
"""The name and type of the value that has the number of a bucket's chunks."""
_ARRIVING = "arriving-"
"""What the names of what has arrived begin with, while more is to come in the micro-batch.

Each chunk has its own: joined to those before, it would be copied once for every chunk behind it."""
_FULL_BYTES = 8 * 1024
"""The largest state of a bucket, in bytes; more moves on to a chunk."""
_CHUNK_BYTES = 64 * 1024
"""How large chunks become if that much arrives at once."""


def send(row: Row, effects: Effects) -> None:
    """Send a message now."""
    effects.messages.append(row)


def release(message: Entry, effects: Effects) -> None:
    """Send a message that has waited, with its place in the order of such messages."""
    send(Row(message.target, message.caller, RELEASED, message.SerializeToString()), effects)


def run_bucket(group: Group, effects: Effects) -> None:
    """Handle the messages of a bucket, or of a chunk of one."""
    held = group.values.values
    before = [name for name in held if name.startswith(_ARRIVING)]
    arrived, now = _arrived(group)
    if not (group.last or now is not None):
        content = TypedValue(DELAYED, b"".join(arrived))
        group.values.apply({f"{_ARRIVING}{len(before)}": content})
        return
    stored, chunks = held.get(BUCKET), held.get(_CHUNKS)
    # Concatenated Protobuf messages are a message with the entries of all.
    pieces = [held[name].value for name in before] + arrived
    if stored:
        pieces.insert(0, stored.value)
    state = stored
    if now is not None:
        _deal(group.key, pieces, now, effects)
        state = chunks = None
    elif sum(map(len, pieces)) > _FULL_BYTES and not is_chunk(group.key):
        first = int(chunks.value) if chunks else 0
        chunks = TypedValue(_CHUNKS, b"%d" % _move(group.key, pieces, first, effects))
        state = None
    elif pieces:
        state = TypedValue(DELAYED, b"".join(pieces))
    group.values.apply({BUCKET: state, _CHUNKS: chunks, **dict.fromkeys(before)})


def _arrived(group: Group) -> tuple[list[bytes], int | None]:
    """Return what has come to wait, and the time of the tick, if one has come, too."""
    arrived: list[bytes] = []
    now = None
    columns = group.columns
    for row in range(group.start, group.end):
        typename, value = columns.typename[row], columns.value[row]
        if typename == DELAYED:
            arrived.append(value)
        elif typename == TICK:
            now = int(value)
    return arrived, now


def _deal(key: bytes, pieces: Iterable[bytes], now: int, effects: Effects) -> None:
    """Release the messages that are due, and pass the others on to finer buckets."""
    later: defaultdict[int, Bucket] = defaultdict(Bucket)
    for piece in pieces:
        for message in Bucket.FromString(piece).messages:
            if message.due <= now:
                release(message, effects)
            else:
                bucket = bucket_before(message.due, now, message.target)
                later[bucket].messages.append(message)
    for bucket, content in later.items():
        send(Row(bucket_key(bucket), key, DELAYED, content.SerializeToString()), effects)
    effects.buckets |= later.keys()


def _move(key: bytes, pieces: Iterable[bytes], first: int, effects: Effects) -> int:
    """Pass all that a bucket holds on to new chunks; return the number of the next one."""
    for number, content in enumerate(_joined(pieces), first):
        chunk = chunk_of(bucket_of(key), number % CHUNKS)
        send(Row(bucket_key(chunk), key, DELAYED, content), effects)
        effects.buckets.add(chunk)
        first = number + 1
    return first


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces to larger ones."""
    joined: list[bytes] = []
    size = 0
    for piece in pieces:
        joined.append(piece)
        size += len(piece)
        if size >= _CHUNK_BYTES:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)
