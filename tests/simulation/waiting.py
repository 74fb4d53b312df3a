# SPDX-License-Identifier: Apache-2.0
"""Counts what waits for the function elsewhere, as the runtime has to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from simulation.arrow_batches import Row
from simulation.world import Attempt, Attempts, World
from statefun.engine import chunks
from statefun.protocol.runtime_pb2 import AddressState, Waiting
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed
from statefun.runtime.ingress import holding

_CHUNK = f"{chunks.CHUNKS_NAMESPACE}/chunk".encode()


def look_at_waiting(
    world: World, checkpoint: Folder, attempt: Attempt, rows: Iterable[Row], *, reads: bool
) -> None:
    """Compare what waits before a micro-batch with the runtime's count, and with whether it reads records."""
    batch = attempt.batch
    sizes = [len(message) for message in _waiting(attempt.state, rows)]
    size = sum(sizes)
    try:
        count = json.loads(read_framed(checkpoint, holding.WAITING))
    except FileNotFoundError:
        count = {"batch": -1, "after": {}, "messages": 0}
    is_repeated = count["batch"] == batch
    counted = sum(count["before" if is_repeated else "after"].values())
    messages = count["messages_before" if is_repeated else "messages"]
    if messages != len(sizes):
        world.wrong = (
            f"{len(sizes)} messages wait before batch {batch}, and {messages} were counted"
        )
    elif counted != size:
        world.wrong = f"{size} bytes wait before batch {batch}, and {counted} were counted"
    elif reads and size > holding.MOST_WAITING_BYTES:
        world.wrong = f"{size} bytes wait before batch {batch}, which reads records"


def left_waiting(attempts: Attempts) -> Iterator[str]:
    """Find what waits at the end."""
    for key, stored in attempts[max(attempts)].state.items() if attempts else ():
        state = AddressState.FromString(stored)
        if (
            key.endswith(_CHUNK)
            or state.waiting
            or state.HasField("stored")
            or state.HasField("under_way")
        ):
            yield f"{key!r} waits for ever"


def _waiting(states: Mapping[bytes, bytes], rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield all messages that wait in states, and on their way to chunks and back."""
    for key, stored in states.items():
        state = AddressState.FromString(stored)
        yield from (*state.waiting, *state.under_way.messages)
        if key.endswith(_CHUNK):
            for value in state.values:
                yield from Waiting.FromString(value.value).messages
    for row in rows:
        if row.typename == chunks.KEPT:
            yield from Waiting.FromString(row.value).messages
