# SPDX-License-Identifier: Apache-2.0
"""Collects the effects of invocations: messages to other addresses, and records for egresses."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any, Final

from statefun.engine.sinks import headers_size
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.sent import WakeUp

PIECE_BYTES = 16 * 1024 * 1024
"""The size at which a piece of the effects is complete, in bytes; each piece becomes an Arrow batch.

Spark reads an Arrow batch as a whole, into memory outside of its heap, and this memory is small. And a column
of a batch holds 2 GiB at most, while one invocation may send more than that."""
NO_TIME: Final = -(1 << 62)
"""An event time, in milliseconds since the epoch, that is before all others."""
_NUMBER_BYTES: Final = 4
"""The approximate size of a number or of a null, in bytes."""


def row_size(row: tuple[Any, ...]) -> int:
    """Return the bytes that an effect's columns take; text counts one byte per character, a lower bound.

    >>> from statefun.engine.sinks import EgressRecord
    >>> row_size(EgressRecord("topic", b"key", None, [("name", b"value"), ("none", None)], 7))
    33
    """
    size = 0
    for cell in row:
        kind = type(cell)
        if kind is bytes or kind is str:
            size += len(cell)
        elif cell is None or kind is int:
            size += _NUMBER_BYTES
        elif isinstance(cell, (bytes, str)):  # a subclass, which a user's serializer has returned
            size += len(cell)
        else:
            size += headers_size(cell)
    return size


EffectColumns = list[list[Any]]
"""Effects as columns: for each field of a message or record, the cells of all."""


class EffectRows:
    """Collects messages, or the records for one egress, in order.

    They are kept as columns: Python's garbage collector would examine a tuple for each of them.
    """

    def __init__(self) -> None:
        self._columns: EffectColumns = []
        self._count = 0
        self._ends: list[int] = []
        """The index after the last row of each complete piece; a piece has ``PIECE_BYTES`` or little more."""
        self._full = PIECE_BYTES
        """The value of ``size`` at which the present piece is complete."""
        self.size = 0
        """The bytes of all columns of the collected effects."""

    def __len__(self) -> int:
        return self._count

    def append(self, row: tuple[Any, ...]) -> None:
        """Add an effect; it must have as many fields as the others."""
        columns = self._columns
        if not columns:
            columns += [[] for _ in row]
        for column, cell in zip(columns, row):  # noqa: B905 - strict is slow, and compiled code has its own loop
            column.append(cell)
        self._count += 1
        self.size += row_size(row)
        if self.size >= self._full:
            self._ends.append(self._count)
            self._full = self.size + PIECE_BYTES

    def take(self) -> list[EffectColumns]:
        """Return the collected effects, in pieces of a bounded size, and remove them."""
        columns, ends = self._columns, [*self._ends, self._count]
        self._columns, self._ends, self._full = [], [], PIECE_BYTES
        self._count = self.size = 0
        if len(ends) == 1:
            return [columns] if columns else []
        bounds = [(start, end) for start, end in pairwise([0, *ends]) if start < end]
        return [[column[start:end] for column in columns] for start, end in bounds]


class Effects:
    """Collects the effects of invocations."""

    def __init__(self) -> None:
        self.egress: defaultdict[str, EffectRows] = defaultdict(EffectRows)
        """The records, by the typename of their egress."""
        self.messages = EffectRows()
        self.buckets: set[int] = set()
        """The numbers of the timer buckets to which some of the messages go."""
        self.wake_ups: dict[tuple[int, WakeUp], dict[bytes, str]] = {}
        """The keys of addresses that send themselves messages in event time, which are not among ``messages`` yet, with
        their trace-context headers; by the message without these, and the number of the bucket in which it waits."""
        self.wake_ups_size = 0
        """The bytes of ``wake_ups``, about."""
        self.oldest: tuple[int, bytes] | None = None
        """The earliest event time of all messages that hold the watermark, in milliseconds since the epoch,
        and the key of the message's target; None if no message holds the watermark."""
        self.watermark = NO_TIME
        """The watermark, in milliseconds since the epoch: messages with an earlier event time do not hold it."""

    def hold(self, event_time: int, target: bytes) -> None:
        """Record a message with an event time, which holds the watermark until it is delivered."""
        if event_time >= self.watermark and (self.oldest is None or event_time < self.oldest[0]):
            self.oldest = event_time, target

    def __bool__(self) -> bool:
        return bool(self.messages) or any(self.egress.values())

    @property
    def size(self) -> int:
        """The bytes of all columns of the collected effects."""
        total = self.messages.size
        for rows in self.egress.values():
            total += rows.size
        return total


def egress_row(message: KafkaEgressMessage) -> tuple[Any, ...]:
    """Return an egress record as an effect: a tuple with the fields of :class:`EgressRecord`."""
    return (
        message.topic,
        message.key,
        message.value,
        message.headers or None,
        message.partition,
        message.timestamp_millis,
    )
