# SPDX-License-Identifier: Apache-2.0
"""Broken replacements for code that keeps a rule of functions elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from statefun.engine import chunks
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import release
from statefun.engine.calls import Call
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.transports import TransportCalls
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.protocol.runtime_pb2 import Outcome
from statefun.remote import remote_function
from statefun.remote.remote_function import RemoteFunctions
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.holding import WaitingGauge, _Count
from statefun.sdk.address import Address
from statefun.sdk.invocation_batch import InvocationBatch, Postponed, Trouble, Turn

_ask, _run_chunk, _settle_chunks = chunks.ask, chunks.run_chunk, chunks.settle_chunks
_add = WaitingGauge.add
_admit, _with_history = RemoteFunctions.admit, TransportCalls.with_history


# Messages that wait


def waits_before_chunks(
    calls: TransportCalls, group: Group, messages: Sequence[bytes], effects: Effects
) -> None:
    """Keep new messages at their address, while older ones are in chunks."""
    calls._keep(group, messages, group.values.waiting_until, effects)


def settles_meanwhile(values: AddressValues, key: bytes, effects: Effects) -> None:
    """Move messages in front of chunks that are on their way back."""
    if values.waiting_size > chunks._FULL_BYTES:
        values.chunks.asked = values.chunks.first
    _settle_chunks(values, key, effects)


def asks_again(values: AddressValues, key: bytes, effects: Effects) -> None:
    """Ask for chunks that are on their way."""
    values.chunks.asked = values.chunks.first
    _ask(values, key, effects)


def comes_back_unordered(message: Entry, effects: Effects) -> None:
    """Let chunks come back as they come."""
    message.sequence = 0
    release(message, effects)


def keeps_chunk(group: Group, effects: Effects) -> None:
    """Keep what was given back."""
    before = dict(group.values.values)
    _run_chunk(group, effects)
    if before and not group.values.values:
        group.values.apply(before)


def counts_again(gauge: WaitingGauge, batch: int, outcomes: Iterable[Outcome]) -> None:
    """Count what a repeated micro-batch adds beside what it has added before."""
    gauge._count = attrs.evolve(gauge._count, batch=-1)
    _add(gauge, batch, outcomes)


def counts_anew(checkpoint: Folder) -> _Count:
    """Count from nothing after each start."""
    return _Count()


def never_holds(gauge: WaitingGauge) -> bool:
    """Let reading go on, whatever waits."""
    return False


def resumes_nothing(calls: TransportCalls, group: Group) -> None:
    """Count what is called again as waiting."""


# Suspects


async def others_go_on(
    remote: RemoteFunctions, target: Address, trouble: Trouble, turn: Turn | None
) -> Postponed | None:
    """Call a server for other addresses as well while a suspect is called."""
    is_own = turn is not None and turn.address == target
    return await _admit(remote, target, trouble, turn if is_own else None)


async def all_have_turns(
    remote: RemoteFunctions, target: Address, trouble: Trouble, turn: Turn | None
) -> Postponed | None:
    """Call each suspect at once, as a process can that knows of no other."""
    if trouble.outages >= remote_function._MOST_OUTAGES:
        turn = Turn(target, remote.client.server_of(target))
    return await _admit(remote, target, trouble, turn)


def alone_as_a_suspect(
    calls: TransportCalls, call: Call, batch: InvocationBatch
) -> InvocationBatch:
    """Take a suspect for alone."""
    trouble = call.group.values.trouble
    is_alone = trouble.outages >= remote_function._MOST_OUTAGES
    return _with_history(calls, call, batch)._replace(is_alone=is_alone)


def always_alone(calls: TransportCalls, call: Call, batch: InvocationBatch) -> InvocationBatch:
    """Blame whatever the server goes down with."""
    return _with_history(calls, call, batch)._replace(is_alone=True)


def remembers_nothing(values: AddressValues, trouble: Trouble) -> None:
    """Leave what calls have come to with the process."""
