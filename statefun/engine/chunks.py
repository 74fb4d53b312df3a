# SPDX-License-Identifier: Apache-2.0
"""The reserved function that keeps messages that wait for an endpoint, beside its address.

An address's state is written as a whole with each message that is added. So an address keeps the first
messages only; those that follow are in chunks, each the state of an address of its own. When the
endpoint can be called, the address asks for some of them, which come back in the next micro-batch but
one. Meanwhile what arrives goes behind the last chunk: nothing overtakes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statefun.engine.address_keys import SEPARATOR, address_of, typename_of
from statefun.engine.buckets import RELEASED, release, send
from statefun.engine.effects import Effects
from statefun.engine.groups import AddressValues, Group, Row
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.protocol.runtime_pb2 import Waiting
from statefun.sdk.errors import CheckpointError
from statefun.sdk.types import TypedValue

CHUNKS_NAMESPACE = "statefun.waiting"
KEPT = f"{CHUNKS_NAMESPACE}/kept"
"""The type of messages that a chunk is to keep, of its state, and of what comes back."""
_ASKED = f"{CHUNKS_NAMESPACE}/asked"
"""The type of the message that asks a chunk for its messages."""
_CHUNK = f"{CHUNKS_NAMESPACE}/chunk".encode()
_FULL_BYTES = 64 * 1024
"""Bytes of a chunk from which on another one is begun."""
_MIDDLE = 1 << 40
"""Exceeds the numbers of chunks, of which some are negative."""
_MOST_ASKED = 32
"""How many chunks are asked for at once: 2 MiB of messages, unless they are large."""


def append(values: AddressValues, key: bytes, messages: Iterable[bytes], effects: Effects) -> None:
    """Keep messages of an address behind all that wait for it."""
    chunks = values.chunks
    parts: dict[int, list[bytes]] = {}
    for message in messages:
        if chunks.size >= _FULL_BYTES or chunks.asked == chunks.end:
            chunks.end += 1
            chunks.size = 0
        chunks.size += len(message)
        parts.setdefault(chunks.end - 1, []).append(message)
    for number, part in parts.items():
        values.changed = True
        _send(chunk_key(key, number), key, part, effects)


def settle_chunks(values: AddressValues, key: bytes, effects: Effects) -> None:
    """Leave few messages in the state of an address: the rest goes before its chunks."""
    chunks = values.chunks
    if values.waiting_size <= _FULL_BYTES or chunks.asked > chunks.first:
        return  # in the second case more of them are on their way
    parts: list[list[bytes]] = []
    size = _FULL_BYTES
    for message in values.waiting:
        if size >= _FULL_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += len(message)
    if not chunks:
        chunks.size = size
    for part in reversed(parts[1:]):
        chunks.first -= 1
        _send(chunk_key(key, chunks.first), key, part, effects)
    chunks.asked = chunks.first
    values.keep_waiting(parts[0])


def ask(values: AddressValues, key: bytes, effects: Effects) -> None:
    """Let some chunks come back, unless others are on their way."""
    chunks = values.chunks
    if chunks.asked > chunks.first:
        return
    chunks.asked = min(chunks.first + _MOST_ASKED, chunks.end)
    values.changed = True
    for number in range(chunks.first, chunks.asked):
        send(Row(chunk_key(key, number), key, _ASKED, b"%d" % number), effects)


def arrive(group: Group, rows: Iterable[int]) -> list[int]:
    """Take over the messages of chunks that have come back, in order; return the other rows.

    Raises:
        CheckpointError: if a chunk is missing.
    """
    others, columns, values = [], group.columns, group.values
    for row in rows:
        if columns.typename[row] != KEPT:
            others.append(row)
            continue
        waiting = Waiting.FromString(columns.value[row])
        if waiting.chunk != values.chunks.first:
            raise CheckpointError(
                f"chunk {waiting.chunk} of the messages that wait for {address_of(group.key)} has come "
                f"instead of chunk {values.chunks.first}; restore the checkpoint from a copy"
            )
        values.wait(waiting.messages, values.waiting_until)
        values.chunks.first += 1
    return others


def chunk_key(key: bytes, number: int) -> bytes:
    r"""Return the key of a chunk of an address.

    >>> chunk_key(b"Ada\0com.example.fns/greeter", 7)
    b'7\x00Ada\x00com.example.fns/greeter\x00statefun.waiting/chunk'
    """
    return SEPARATOR.join((b"%d" % number, key, _CHUNK))


def run_chunk(group: Group, effects: Effects) -> None:
    """Handle the messages of a chunk: keep what comes, and give it back when that is asked for."""
    columns, held = group.columns, group.values.values
    pieces = [held[KEPT].value] if KEPT in held else []
    target = group.key.partition(SEPARATOR)[2].rpartition(SEPARATOR)[0]
    for row in range(group.start, group.end):
        if columns.typename[row] == KEPT:
            pieces.append(columns.value[row])
            continue
        number = int(columns.value[row])
        pieces.append(Waiting(chunk=number).SerializeToString())
        back = Row(target, group.key, KEPT, b"".join(pieces))
        # The source of messages puts those that were released in order.
        release(Entry(due=0, sequence=_MIDDLE + number, **back._asdict()), effects)
        pieces = []
    # Concatenated Protobuf messages are a message with the entries of all.
    group.values.apply({KEPT: TypedValue(KEPT, b"".join(pieces)) if pieces else None})


def kept_for(target: bytes, typename: str, value: bytes) -> Iterator[str]:
    """Yield the function types of the messages in a chunk, or on their way to one or back."""
    if typename == RELEASED:
        entry = Entry.FromString(value)
        typename, value = entry.typename, entry.value
    if typename == KEPT:
        of = typename_of(target.removesuffix(SEPARATOR + _CHUNK))
        for _ in Waiting.FromString(value).messages:
            yield of


def is_own(typename: str, value: bytes) -> bool:
    """Return whether a message in the outbox is one between an address and its chunks."""
    if typename == RELEASED:
        typename = Entry.FromString(value).typename
    return typename in {KEPT, _ASKED}


def _send(chunk: bytes, key: bytes, messages: Iterable[bytes], effects: Effects) -> None:
    send(Row(chunk, key, KEPT, Waiting(messages=messages).SerializeToString()), effects)
