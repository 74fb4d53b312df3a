# SPDX-License-Identifier: Apache-2.0
"""The records of an address that wait for their partners: a value for each record, and one for the list of them.

The list is sorted by event time and has entries of one size, so that the partners of a record are found without looking
at all others.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from statefun.sdk.types import SimpleType, TypedValue
from statefun.sdk.value_spec import IN_WINDOW, ValueSpec
from statefun.sdk.values import UNSET, Values

_ENTRY = struct.Struct("<3q2?")
_TIME = _NEXT = struct.Struct("<q")
_SIZE = _ENTRY.size


class Buffered(NamedTuple):
    """A record that may have a partner that comes later."""

    time: int
    """The event time, in milliseconds since the epoch."""
    number: int
    """The number in the name of the record's value."""
    due: int
    """The event time at which a timer wakes the address up, as no partner can come any longer."""
    is_left: bool
    """Whether the record is of the first of the two classes."""
    is_matched: bool
    """Whether the record has had a partner."""

    def age(self) -> tuple[int, int]:
        """Return what sorts records by their event times, and those of one time as they have come."""
        return self.time, self.number

    @property
    def name(self) -> str:
        """The name of the record's value."""
        return f"{'left' if self.is_left else 'right'}{IN_WINDOW}{self.number}"


class _List(NamedTuple):
    """The list of the records that wait at an address."""

    next_number: int
    """The number of the next record."""
    records: tuple[Buffered, ...]


def _encoded(content: _List) -> bytes:
    return _NEXT.pack(content.next_number) + b"".join(
        _ENTRY.pack(*each) for each in content.records
    )


def _decoded(content: bytes) -> _List:
    entries = _ENTRY.iter_unpack(content[_NEXT.size :])
    return _List(_NEXT.unpack_from(content)[0], tuple(map(Buffered._make, entries)))


_TYPE: SimpleType[_List] = SimpleType.simple_immutable_type_from(
    "io.statefun.python/buffered", _encoded, _decoded
)
BUFFERED = ValueSpec("buffered", _TYPE)
"""The value of an address that lists its waiting records, sorted by time."""


class Buffer:
    """The records that wait at an address for their partners.

    Args:
        values: the values of the address.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        current = values.current(BUFFERED.name)
        content = _NEXT.pack(0) if current is None or current is UNSET else current.value
        self._next: int = _NEXT.unpack_from(content)[0]
        self._content = content[_NEXT.size :]

    def between(self, first: int, last: int) -> list[Buffered]:
        """Return the records with event times from ``first`` to ``last``, by their times."""
        start, end = self._position(first), self._position(last + 1)
        return [self._at(position) for position in range(start, end)]

    def due(self, now: int) -> list[Buffered]:
        """Return the records for which no partner can come after ``now``, by their times."""
        return [each for each in self._all() if each.due <= now]

    def is_waking_up(self, time: int, due: int) -> bool:
        """Return whether the record just before or just after an event time has a timer that is due at ``due``."""
        position = self._position(time)
        count = len(self._content) // _SIZE
        near = range(max(position - 1, 0), min(position + 1, count))
        return any(self._at(each).due == due for each in near)

    def value(self, record: Buffered) -> TypedValue:
        """Return the value of a record."""
        value = self._values.current(record.name)
        if value is None:
            raise AssertionError(f"the record {record} has no value")
        return value

    def add(
        self, time: int, due: int, value: TypedValue, *, is_left: bool, is_matched: bool
    ) -> None:
        """Add a record."""
        record = Buffered(time, self._next, due, is_left, is_matched)
        self._next += 1
        self._values.changed[record.name] = value
        at = self._position(time) * _SIZE
        self._write(b"".join((self._content[:at], _ENTRY.pack(*record), self._content[at:])))

    def match(self, records: Iterable[Buffered]) -> None:
        """Store that records have had a partner."""
        matched = {each for each in records if not each.is_matched}
        if not matched:
            return
        start = self._position(min(each.time for each in matched))
        end = self._position(max(each.time for each in matched) + 1)
        entries = (
            _ENTRY.pack(*(each._replace(is_matched=True) if each in matched else each))
            for each in map(self._at, range(start, end))
        )
        before, after = self._content[: start * _SIZE], self._content[end * _SIZE :]
        self._write(b"".join((before, *entries, after)))

    def superseded(self, time: int) -> list[Buffered]:
        """Return the right records that are no partner of a waiting left record, or of one from ``time`` on.

        The partner of a left record is the newest right one that is not later.
        """
        rights = []
        for position in range(self._position(time + 1)):
            each = self._at(position)
            if each.is_left:
                break
            rights.append(each)
        newest = max(rights, key=Buffered.age, default=None)
        return [each for each in rights if each is not newest]

    def remove(self, records: Iterable[Buffered]) -> None:
        """Remove records and their values."""
        removed = {*records}
        for each in removed:
            self._values.changed[each.name] = None
        self._write(b"".join(_ENTRY.pack(*each) for each in self._all() if each not in removed))

    def _all(self) -> list[Buffered]:
        return [Buffered._make(each) for each in _ENTRY.iter_unpack(self._content)]

    def _at(self, position: int) -> Buffered:
        return Buffered._make(_ENTRY.unpack_from(self._content, position * _SIZE))

    def _position(self, time: int) -> int:
        """Return the number of records before an event time."""
        content, unpack = self._content, _TIME.unpack_from
        return bisect_left(
            range(len(content) // _SIZE),
            time,
            key=lambda number: unpack(content, number * _SIZE)[0],
        )

    def _write(self, content: bytes) -> None:
        self._content = content
        value = TypedValue(_TYPE.typename, _NEXT.pack(self._next) + content) if content else None
        self._values.changed[BUFFERED.name] = value
