# SPDX-License-Identifier: Apache-2.0
"""Collects everything that a checkpoint says about one address: its values, and the messages on their way to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
from google.protobuf.message import DecodeError

from statefun.engine.address_keys import SEPARATOR, address_key, address_of
from statefun.engine.buckets import RELEASED
from statefun.engine.chunks import KEPT, chunk_key, is_own
from statefun.engine.delays import (
    delayed_messages,
    is_wake_up,
    names_tokens,
    released_tokens,
    token_of,
)
from statefun.engine.row import Row
from statefun.engine.wheel import LATEST, TIMERS_NAMESPACE, bucket_key, event_tick_of, tick_of
from statefun.protocol.runtime_pb2 import AddressState, Retry, Waiting
from statefun.protocol.runtime_pb2 import DelayedMessage as Entry
from statefun.runtime.stored.committed_state import CommittedState
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.pending_timers import pending_buckets
from statefun.runtime.stored.typed_values import (
    SECRET_VALUE,
    Decoded,
    ValueDecoder,
)
from statefun.runtime.stored.undelivered import sent_rows, undelivered_rows
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError

_TIMERS = SEPARATOR + TIMERS_NAMESPACE.encode() + b"/"


@attrs.frozen
class StoredValue:
    """A value in the state of an address."""

    name: str
    typename: str
    size: int | None
    """The size of the encoded value, in bytes; None if the value is secret."""
    decoded: Decoded
    expires: int
    """When the value expires, in milliseconds since the epoch; 0 for never."""


@attrs.frozen
class PendingMessage:
    """A message that the address has not handled yet."""

    typename: str
    size: int | None
    """The size of the value in bytes; None for a record without a value, and if the value is secret."""
    caller: Address | None
    """The address that has sent the message; None for a record of an ingress, and for a message of a person."""
    decoded: Decoded
    due: int = 0
    """When a delayed message is due, in milliseconds since the epoch; 0 for a message that is not delayed."""
    in_event_time: bool = False
    """Whether a delayed message is due when the watermark has come to that time, and not when the clock has."""
    token: str = ""
    """The token by which the message can be cancelled; may be empty."""
    attempts: int = 0
    """How often the message was tried."""


@attrs.frozen
class CallUnderWay:
    """A call of the address that goes on while micro-batches are committed."""

    since: int
    """When the call has left its micro-batch, in milliseconds since the epoch."""
    attempt: str
    """The name of the call."""
    messages: Sequence[PendingMessage]


@attrs.frozen
class AddressReport:
    """Everything that a checkpoint says about one address, as of a micro-batch."""

    address: Address
    batch: int
    values: Sequence[StoredValue]
    call: CallUnderWay | None
    waiting: Sequence[PendingMessage]
    """The messages that wait until the function can be called, in order."""
    waiting_until: int
    """When the waiting messages may be handled, in milliseconds since the epoch; 0 for now."""
    timers: Sequence[PendingMessage]
    """The delayed messages to the address, by due time: those of the clock, and then those of event time."""
    undelivered: Sequence[PendingMessage]
    """The messages that other addresses have sent and that the next micro-batches deliver, in order; then those of
    ``statefun send``, which have no caller."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known about the address: it has no state, and no messages are on their way to it."""
        parts = (self.values, self.waiting, self.timers, self.undelivered)
        return self.call is None and not any(parts)


def address_report(
    state: CommittedState, address: Address, known: KnownValues, *, is_newest: bool
) -> AddressReport:
    """Collect what a checkpoint says about an address.

    Args:
        state: the state as of a micro-batch.
        address: the address, with the stored name of its function.
        known: the types of values.
        is_newest: whether the micro-batch is the newest one: then the log of timers and the outbox name the buckets
            with delayed messages, and the outbox has the undelivered messages. Otherwise the whole state is read for the delayed
            messages, and messages that were undelivered then are not known.

    Raises:
        CheckpointError: if a file of the checkpoint is damaged.
    """
    key = address_key(address)
    try:
        stored = AddressState.FromString(state.get(key) or b"")
    except DecodeError as error:
        raise CheckpointError(
            f"the stored state of {address} in checkpoint {state.checkpoint.shown} is damaged ({error}); restore "
            "the checkpoint from a copy"
        ) from error
    chunk_keys = (
        chunk_key(key, number) for number in range(stored.stored.first, stored.stored.end)
    )
    rows = list(undelivered_rows(state.checkpoint, state.batch)) if is_newest else []
    sent = list(sent_rows(state.checkpoint, state.batch)) if is_newest else []
    delayed = [pair for row in rows for pair in _delayed(row.typename, row.value, key)]
    delayed += _scheduled(state, key) if is_newest else _all_scheduled(state, key)
    messages = _Messages(known, address.typename)
    return AddressReport(
        known.present(address),
        state.batch,
        [stored_value(value, address, known) for value in stored.values],
        CallUnderWay(
            stored.under_way.since,
            stored.under_way.attempt,
            [messages.of_retry(each) for each in stored.under_way.messages],
        )
        if stored.HasField("under_way")
        else None,
        [messages.of_retry(each) for each in (*stored.waiting, *_kept(state, chunk_keys))],
        stored.waiting_until,
        sorted(
            (messages.of_entry(entry, token) for entry, token in delayed),
            key=lambda message: (message.in_event_time, message.due),
        ),
        [
            message
            for row in (*rows, *sent)
            if row.target == key
            for message in messages.of_row(row)
        ],
    )


class _Messages:
    """Makes messages for a report from the forms in which they are stored.

    Args:
        known: the types of values.
        target: the typename of the function that gets the messages.
    """

    def __init__(self, known: KnownValues, target: str) -> None:
        self._known = known
        self._target = target
        self._decoders: dict[str, tuple[str, ValueDecoder]] = {}
        """The decoders of the messages by their typenames, each with the typename that it takes."""
        self._secret_types = known.secret_types()

    def of_retry(self, content: bytes) -> PendingMessage:
        """Return a message that waits in the state of its target."""
        retry = Retry.FromString(content)
        value = retry.value if retry.HasField("value") else None
        return self._message(retry.typename, value, retry.caller, attempts=retry.attempts)

    def of_entry(self, entry: Entry, token: str) -> PendingMessage:
        """Return the report's message for a delayed message in a bucket."""
        facts = {"due": entry.due, "in_event_time": entry.in_event_time, "token": token}
        return self._message(entry.typename, entry.value, entry.caller, **facts)

    def of_row(self, row: Row) -> Iterator[PendingMessage]:
        """Yield the report's message for a message in the outbox; nothing for one of the engine's own messages."""
        if is_wake_up(row.typename, row.value) or is_own(row.typename, row.value):
            return
        if row.typename == RELEASED:
            yield self.of_entry(Entry.FromString(row.value), "")
        else:
            yield self._message(row.typename, row.value, row.caller)

    def _message(
        self, typename: str, value: bytes | None, caller: bytes, **facts: Any
    ) -> PendingMessage:
        sender = self._known.present(address_of(caller)) if caller else None
        if value is not None and typename in self._secret_types:
            return PendingMessage(typename, None, sender, SECRET_VALUE, **facts)
        decoded = Decoded(None) if value is None else self._decoded(typename, value)
        size = None if value is None else len(value)
        return PendingMessage(typename, size, sender, decoded, **facts)

    def _decoded(self, typename: str, value: bytes) -> Decoded:
        if typename not in self._decoders:
            type_ = self._known.message_type(self._target, typename)
            read = typename if type_ is None or type_.reads(typename) else type_.typename
            self._decoders[typename] = read, ValueDecoder(type_)
        read, decoder = self._decoders[typename]
        return decoder.decode(read, value)


def stored_value(value: AddressState.Value, address: Address, known: KnownValues) -> StoredValue:
    """Return a value of an address, decoded unless it is secret."""
    if known.secrets(address.typename).hides(value.name, value.typename):
        return StoredValue(value.name, value.typename, None, SECRET_VALUE, value.expires)
    decoder = known.decoder(address.typename, value.name, value.typename)
    decoded = decoder.decode(value.typename, value.value)
    return StoredValue(value.name, value.typename, len(value.value), decoded, value.expires)


def _kept(state: CommittedState, keys: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the messages in chunks, given the chunks' keys; each message is a serialized ``Retry``."""
    for key in keys:
        for value in AddressState.FromString(state.get(key) or b"").values:
            if value.typename == KEPT:
                yield from Waiting.FromString(value.value).messages


def _scheduled(state: CommittedState, target: bytes) -> list[tuple[Entry, str]]:
    """Return the delayed messages to an address in the buckets that wait for their tick, each with its token."""
    pending = pending_buckets(state.checkpoint, state.batch)
    buckets = pending.due(tick_of(LATEST) + 1) + pending.due(event_tick_of(LATEST) + 1)
    found: list[tuple[Entry, str]] = []
    tokens: set[bytes] = set()
    for bucket in buckets:
        content = state.get(bucket_key(bucket)) or b""
        if target in content or names_tokens(content):  # most buckets need not be parsed
            for value in AddressState.FromString(content).values:
                found += _delayed(value.typename, value.value, target)
                tokens.update(released_tokens(value.typename, value.value))
    for key in sorted(tokens):
        for value in AddressState.FromString(state.get(key) or b"").values:
            found += _delayed(value.typename, value.value, target)
    return found


def _all_scheduled(state: CommittedState, target: bytes) -> list[tuple[Entry, str]]:
    """Return all delayed messages to an address in the state, each with its token; the whole state is read."""
    return [
        pair
        for _, content in state.containing(_TIMERS)
        if target in content
        for value in AddressState.FromString(content).values
        for pair in _delayed(value.typename, value.value, target)
    ]


def _delayed(typename: str, value: bytes, target: bytes) -> Iterator[tuple[Entry, str]]:
    """Yield the delayed messages to ``target`` that a value contains, each with its token, which may be empty."""
    token = token_of(typename, value)
    for entry in delayed_messages(typename, value):
        if entry.target == target:
            yield entry, token
