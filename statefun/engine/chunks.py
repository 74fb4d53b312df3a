# SPDX-License-Identifier: Apache-2.0
"""The reserved function of chunks: it keeps messages that wait until a function can be called.

With each message that is added to the state of an address, Spark writes the whole state again. So the state holds
only the first waiting messages, and few while the function cannot be called; further messages are in chunks, and
each chunk is the state of a reserved address. When the function can be called, its address asks some chunks for
their messages, and gets them two micro-batches later. Messages that arrive meanwhile are added after the last
chunk, so that no message overtakes another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from statefun.engine.address_keys import SEPARATOR, address_of, typename_of
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import RELEASED, release, send
from statefun.engine.effects import Effects
from statefun.engine.groups import Group, own_value
from statefun.engine.row import Row
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.protocol.runtime_pb2 import Waiting
from statefun.sdk.errors import CheckpointError
from statefun.sdk.types import TypedValue

CHUNKS_NAMESPACE = "statefun.waiting"
KEPT = f"{CHUNKS_NAMESPACE}/kept"
"""The type of a message that adds messages to a chunk or returns its messages, and of the chunk's state."""
_ASKED = f"{CHUNKS_NAMESPACE}/asked"
"""The type of the message that asks a chunk for its messages."""
_CHUNK = f"{CHUNKS_NAMESPACE}/chunk".encode()
_FULL_BYTES = 64 * 1024
"""The size at which a chunk is full, in bytes; the next message begins another chunk."""
_KEPT_BYTES = 4 * 1024
"""How many bytes of messages a state keeps, besides chunks, while the function cannot be called."""
_MIDDLE = 1 << 40
"""Added to the number of a chunk, which may be negative, to get a sequence number, which may not."""
_MOST_ASKED = 32
"""How many chunks an address asks at once: they hold 2 MiB of messages, or more if messages are large."""


def append(values: AddressValues, key: bytes, messages: Iterable[bytes], effects: Effects) -> None:
    """Add messages to the last chunk of an address, or to new chunks, after all other waiting messages."""
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
    """If the waiting messages in a state are too large, move all but the first ones to new chunks.

    The new chunks come before the address's other chunks. While the function cannot be called, the state keeps little
    besides chunks, as each wake-up and each further message writes it again. Otherwise it keeps the messages of the
    next calls: chunks that are asked come two micro-batches later, and those that a call leaves are written again. A
    state that has just got messages of chunks keeps as many until the next wake-up finds that the function still
    cannot be called: an endpoint may take one request in a second, and answer all others that it has to rest.
    """
    chunks = values.chunks
    has_just_got_more = values.waiting_size > _FULL_BYTES + _FULL_BYTES // 4
    kept = _KEPT_BYTES if values.waiting_until and not has_just_got_more else _FULL_BYTES
    if values.waiting_size <= (kept if chunks else _FULL_BYTES) or chunks.asked > chunks.first:
        return  # in the second case, chunks that were asked for are on their way
    parts: list[list[bytes]] = [[]]
    full, size = kept, 0
    for message in values.waiting:
        if size >= full:
            parts.append([])
            full, size = _FULL_BYTES, 0
        parts[-1].append(message)
        size += len(message)
    if len(parts) == 1:
        return
    if not chunks:
        chunks.size = size
    for part in reversed(parts[1:]):
        chunks.first -= 1
        _send(chunk_key(key, chunks.first), key, part, effects)
    chunks.asked = chunks.first
    values.keep_waiting(parts[0])


def ask(values: AddressValues, key: bytes, effects: Effects) -> None:
    """Ask the first chunks of an address for their messages, unless messages of chunks are on their way."""
    chunks = values.chunks
    if chunks.asked > chunks.first:
        return
    chunks.asked = min(chunks.first + _MOST_ASKED, chunks.end)
    values.changed = True
    for number in range(chunks.first, chunks.asked):
        send(Row(chunk_key(key, number), key, _ASKED, b"%d" % number), effects)


def arrive(group: Group, rows: Iterable[int]) -> list[int]:
    """Take the messages that chunks have returned, and add them to the waiting ones; return the other rows.

    Raises:
        CheckpointError: if a chunk is missing or damaged.
    """
    others, columns, values = [], group.columns, group.values
    for row in rows:
        if columns.typename[row] != KEPT:
            others.append(row)
            continue
        chunk = own_value(group.key, KEPT, columns.value[row], Waiting.FromString)
        if chunk.chunk != values.chunks.first:
            raise CheckpointError(
                f"chunk {chunk.chunk} of the messages that wait for {address_of(group.key)} has come "
                f"instead of chunk {values.chunks.first}, which is lost; restore the checkpoint from a copy"
            )
        values.wait(chunk.messages, values.waiting_until)
        values.chunks.first += 1
    return others


def chunk_key(key: bytes, number: int) -> bytes:
    r"""Return the key of a chunk, which belongs to the address with the key ``key``.

    >>> chunk_key(b"Ada\0com.example.fns/greeter", 7)
    b'7\x00Ada\x00com.example.fns/greeter\x00statefun.waiting/chunk'
    """
    return SEPARATOR.join((b"%d" % number, key, _CHUNK))


def run_chunk(group: Group, effects: Effects) -> None:
    """Handle the rows of a chunk: keep added messages, and return all of them when their address asks."""
    columns, values = group.columns, group.values.values
    pieces = [values[KEPT].value] if KEPT in values else []
    target = group.key.partition(SEPARATOR)[2].rpartition(SEPARATOR)[0]
    for row in range(group.start, group.end):
        if columns.typename[row] == KEPT:
            pieces.append(columns.value[row])
            continue
        number = int(columns.value[row])
        pieces.append(Waiting(chunk=number).SerializeToString())
        back = Row(target, group.key, KEPT, b"".join(pieces))
        # The feedback source orders released messages by their number.
        release(Entry(due=0, sequence=_MIDDLE + number, **back._asdict()), effects)
        pieces = []
    # Concatenated Protobuf messages are a message with the entries of all.
    group.values.apply({KEPT: TypedValue(KEPT, b"".join(pieces)) if pieces else None})


def kept_for(target: bytes, typename: str, value: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the waiting messages in a value: the typename of the function for which each waits, and the message.

    A message is a serialized ``Retry``. The value is in the state of a chunk, or in a message between an address and
    its chunk.

    Args:
        target: the key of the chunk with the state, or of the address that gets the message.
        typename: the typename of the value.
        value: the value.
    """
    if typename == RELEASED:
        entry = Entry.FromString(value)
        typename, value = entry.typename, entry.value
    if typename == KEPT:
        typename_of_target = typename_of(target.removesuffix(SEPARATOR + _CHUNK))
        for message in Waiting.FromString(value).messages:
            yield typename_of_target, message


def is_own(typename: str, value: bytes) -> bool:
    """Return whether a message in the outbox goes from an address to one of its chunks, or back."""
    if typename == RELEASED:
        typename = Entry.FromString(value).typename
    return typename in {KEPT, _ASKED}


def _send(chunk: bytes, key: bytes, messages: Iterable[bytes], effects: Effects) -> None:
    send(Row(chunk, key, KEPT, Waiting(messages=messages).SerializeToString()), effects)
