# SPDX-License-Identifier: Apache-2.0
"""Counts and lists the addresses with state in a checkpoint; finds the one most similar to a mistyped address."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
from google.protobuf.message import DecodeError

from statefun.engine.address_keys import SEPARATOR, address_of
from statefun.engine.groups import OWN_PREFIX
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.stored.address_report import StoredValue, stored_value
from statefun.runtime.stored.committed_state import CommittedState
from statefun.runtime.stored.known_values import KnownValues, nearest
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError, ConfigurationError

_CANDIDATES = 10_000
"""How many ids are compared at most with one that is not found."""


@attrs.frozen
class ListedAddress:
    """An address with state."""

    address: Address
    values: Sequence[StoredValue]
    waiting: int
    """How many messages wait in its state until the function can be called; further ones may be elsewhere."""


@attrs.frozen
class Listing:
    """The first addresses of a checkpoint, by type and id, and how many there are."""

    batch: int
    addresses: Sequence[ListedAddress]
    total: int


def addresses_by_type(state: CommittedState) -> Counter[str]:
    """Return the number of addresses with state, by function type; statefun's own addresses do not count."""
    counts: Counter[bytes] = Counter(key.rpartition(SEPARATOR)[2] for key, _ in state)
    own = OWN_PREFIX.encode()
    return Counter(
        {name.decode(): count for name, count in counts.items() if not name.startswith(own)}
    )


def listing(state: CommittedState, known: KnownValues, typename: str | None, limit: int) -> Listing:
    """Return the first addresses with state; the whole state is read.

    Args:
        state: the state of a checkpoint.
        known: the types of values.
        typename: the typename of the function whose addresses are listed; None for all functions.
        limit: how many addresses are listed at most.

    Raises:
        CheckpointError: if a file or a state is damaged.
    """
    total = 0
    suffix = None if typename is None else SEPARATOR + known.stored_name(typename).encode()
    own = SEPARATOR + OWN_PREFIX.encode()

    def chosen() -> Iterator[tuple[tuple[bytes, bytes], bytes]]:
        nonlocal total
        for key, content in state:
            if key.endswith(suffix) if suffix is not None else own not in key:
                total += 1
                id_, _, name = key.rpartition(SEPARATOR)
                yield (name, id_), content

    first = heapq.nsmallest(limit, chosen(), key=lambda pair: pair[0])
    rows = [_listed(id_ + SEPARATOR + name, content, known) for (name, id_), content in first]
    return Listing(state.batch, rows, total)


def _listed(key: bytes, content: bytes, known: KnownValues) -> ListedAddress:
    address = address_of(key)
    try:
        stored = AddressState.FromString(content)
    except DecodeError as error:
        raise CheckpointError(
            f"the stored state of {address} is damaged ({error}); restore the checkpoint from a copy"
        ) from error
    values = [stored_value(value, address, known) for value in stored.values]
    waiting = len(stored.waiting) + len(stored.under_way.messages)
    return ListedAddress(known.present(address), values, waiting)


def parsed_address(text: str, known: KnownValues) -> Address:
    """Return the address that a text, such as ``com.example/card/c1``, names, with the stored name of its function.

    Ids may have slashes. The text may have any name of a renamed function.

    Raises:
        ConfigurationError: if the text is no address.
    """
    typenames = (*known.typenames, *known.former_names())
    for typename in sorted(typenames, key=len, reverse=True):
        if text.startswith(f"{typename}/"):
            return Address(known.stored_name(typename), text.removeprefix(f"{typename}/"))
    parts = text.split("/", 2)
    if len(parts) < 3 or not all(parts[:2]):  # noqa: PLR2004 - as the error says
        hint = (
            ", which is a function: add the id of one of its addresses"
            if text in typenames
            else known.hint(text)
        )
        raise ConfigurationError(
            f"an address must be <namespace>/<name>/<id>, such as com.example/card/c1, not {text!r}{hint}"
        )
    return Address(f"{parts[0]}/{parts[1]}", parts[2])


def unknown_address(state: CommittedState, address: Address, known: KnownValues) -> str:
    """Return the error text for an address that a checkpoint does not have; it suggests a similar id or function."""
    shown = known.present(address)
    nothing = (
        f"checkpoint {state.checkpoint.shown} has nothing about {shown} in batch {state.batch}"
    )
    if shown.typename not in known.typenames:
        return f"{nothing}, and no function {address.typename}{known.hint(address.typename)}"
    size = len(address.id.encode())
    suffix = SEPARATOR + address.typename.encode()
    ids: list[str] = []
    for key, _ in state:
        if key.endswith(suffix) and abs(len(key) - len(suffix) - size) <= max(1, size // 4):
            ids.append(address_of(key).id)
            if len(ids) == _CANDIDATES:
                break
    return nothing + nearest(address.id, ids, "similar ids") if ids else nothing
