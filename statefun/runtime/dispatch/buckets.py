# SPDX-License-Identifier: Apache-2.0
"""What the reserved function of timer buckets does: keep delayed messages until they are due.

Whatever is added to a bucket is a change of its state, all of which is written again. So a bucket
that has grown large is split: what it holds, and what still comes for it, goes on to parts of it,
by target, so that messages to one target stay in order. Its own state then says which parts hold
something. When it is sent a tick, so are they.

The parts are emptied one micro-batch later than the bucket would have been. Messages that come
behind the tick must not overtake theirs, and go on to the parts as well, until a micro-batch
brings nothing but the bucket's own request to forget that it was split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from statefun.protocol.runtime_pb2 import Bucket
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.runtime.dispatch.groups import Group, Row
from statefun.runtime.effects import Effects
from statefun.runtime.timers import BUCKET, NAMESPACE, PARTS, is_part, part_key, part_of
from statefun.sdk.types import TypedValue

TICK = f"{NAMESPACE}/tick"
"""The type of what the feedback source sends to a bucket that is due."""
DELAYED = f"{NAMESPACE}/delayed"
"""The type of what is to wait in a bucket, and of what does."""
_SPLIT = f"{NAMESPACE}/split"
"""The type of the state of a bucket that was split: a bit for each part that holds something."""
_FORGET = f"{NAMESPACE}/forget"
_FULL_BYTES = 64 * 1024
"""A bucket that would hold more is split."""


def send(row: Row, effects: Effects) -> None:
    """Send a message now."""
    effects.messages.append(row)


def released(message: Entry) -> Row:
    """Return a message that has waited, as the row that it was."""
    trace = message.trace or None
    return Row(message.target, message.caller, message.typename, message.value, trace)


def run_bucket(group: Group, effects: Effects) -> None:
    """Do what a bucket, or a part of one, does with the messages of a group."""
    rows = slice(group.start, group.end)
    typenames, values = group.columns.typename[rows], group.columns.value[rows]
    stored = group.values.values.get(BUCKET)
    # One Protobuf message behind the other is a message that has all entries.
    arrived = b"".join(values)
    if stored and stored.typename == _SPLIT:
        _go_on(group, int.from_bytes(stored.value, "big"), typenames, arrived, effects)
        return
    content = (stored.value if stored else b"") + arrived
    if TICK in typenames:  # it comes behind all messages of its micro-batch
        for message in sorted(Bucket.FromString(content).messages, key=lambda entry: entry.due):
            send(released(message), effects)
        if stored:
            group.values.apply({BUCKET: None})
    elif len(content) > _FULL_BYTES and not is_part(group.key):
        _go_on(group, 0, typenames, content, effects)
    elif arrived:
        group.values.apply({BUCKET: TypedValue(DELAYED, content)})


def _go_on(
    group: Group, parts: int, typenames: Iterable[str], content: bytes, effects: Effects
) -> None:
    """Let the parts of a bucket have what came for it; ``parts`` is a bit for each that is used."""
    entries: defaultdict[int, Bucket] = defaultdict(Bucket)
    for message in Bucket.FromString(content).messages:
        entries[part_of(message.target)].messages.append(message)
    for part, bucket in entries.items():
        row = Row(part_key(group.key, part), group.key, DELAYED, bucket.SerializeToString())
        send(row, effects)
        parts |= 1 << part
    if TICK in typenames:
        for part in range(PARTS):
            if parts >> part & 1:
                send(Row(part_key(group.key, part), group.key, TICK, b""), effects)
        send(Row(group.key, group.key, _FORGET, b""), effects)
        parts = 0
    is_over = (
        group.last and not (entries or parts) and _FORGET in typenames and TICK not in typenames
    )
    state = None if is_over else TypedValue(_SPLIT, parts.to_bytes(PARTS // 8, "big"))
    group.values.apply({BUCKET: state})
