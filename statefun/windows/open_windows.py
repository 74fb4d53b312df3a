# SPDX-License-Identifier: Apache-2.0
"""The list of an address's open windows, which is stored as a value of the address.

The list is sorted by the windows' starts and has entries of one size, so that a window is found among thousands
without decoding the others.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, NamedTuple

from statefun.sdk.types import SimpleType, TypedValue
from statefun.sdk.value_spec import ValueSpec
from statefun.sdk.values import UNSET, Values
from statefun.windows.window_forms import Form

_ENTRY = struct.Struct("<9q?")
_START = struct.Struct("<8xq")
_SIZE = _ENTRY.size
_IS_PANE = _SIZE - 1
"""The place of :attr:`OpenWindow.is_pane` in an entry."""
_KEY = struct.Struct("<q")
_LEAST_START = -(1 << 62)
"""Less than the start of any window, in milliseconds since the epoch."""
NO_UPDATE = 1 << 62
"""The ``update`` of a window that has not changed since its last early result; later than all times."""


class OpenWindow(NamedTuple):
    """A window of an address that has had a record, and is not closed."""

    key: int
    """The number in the names of the window's values."""
    start: int
    """The start, in milliseconds since the epoch."""
    end: int
    """The end, in milliseconds since the epoch."""
    due: int
    """The event time at which a timer wakes the address up to look at the window."""
    update: int
    """The event time at which a timer wakes the address up for an early result of the window."""
    next_end: int
    """The end of the window; for a pane, the end of the first window with this pane that is not closed."""
    size: int
    """Of the form for which the window was opened, as the next two."""
    every: int
    offset: int
    is_pane: bool
    """Whether it is a part of windows that overlap, and not a window itself."""

    @property
    def form(self) -> Form:
        """What the window, or the windows of the pane, were opened for."""
        return Form(self.size, self.every, self.offset)


def opened(key: int, start: int, end: int, due: int, form: Form) -> OpenWindow:
    """Return a new window that is no pane."""
    return OpenWindow(key, start, end, due, NO_UPDATE, end, *form, is_pane=False)


def _encoded(windows: Iterable[OpenWindow]) -> bytes:
    return b"".join(_ENTRY.pack(*each) for each in windows)


def _decoded(content: bytes) -> tuple[OpenWindow, ...]:
    return tuple(map(OpenWindow._make, _ENTRY.iter_unpack(content)))


_TYPE: SimpleType[tuple[OpenWindow, ...]] = SimpleType.simple_immutable_type_from(
    "io.statefun.python/windows", _encoded, _decoded
)
OPEN_WINDOWS = ValueSpec("windows", _TYPE)
"""The value of an address that lists its open windows, sorted by start and end."""


def _place(window: OpenWindow) -> tuple[int, int, Form, bool]:
    return window.start, window.end, window.form, window.is_pane


class OpenWindows:
    """Reads and writes addresses' lists of open windows; remembers what it found in the list that it read last."""

    def __init__(self) -> None:
        self._value: TypedValue | None = UNSET
        self._content = b""
        self._found: dict[tuple[int, int, Form, bool], OpenWindow] = {}
        self._has_panes: bool | None = None

    def __reduce__(self) -> tuple[type[OpenWindows], tuple[()]]:
        return OpenWindows, ()

    def find(
        self, values: Values, start: int, end: int, form: Form, *, is_pane: bool = False
    ) -> OpenWindow | None:
        """Return the window, or the pane, with a start, an end and a form if it is open."""
        content = self._read(values)
        place = start, end, form, is_pane
        window = self._found.get(place)
        if window is None:
            position = self._position(content, start) * _SIZE
            while position < len(content):
                each = OpenWindow._make(_ENTRY.unpack_from(content, position))
                if each.start != start:
                    break
                if each.end == end and each.is_pane == is_pane and each[6:9] == form:
                    window = self._found[place] = each
                    break
                position += _SIZE
        return window

    def has_panes(self, values: Values) -> bool:
        """Return whether some entries of the list are panes."""
        content = self._read(values)
        if self._has_panes is None:
            self._has_panes = any(content[_IS_PANE::_SIZE])
        return self._has_panes

    def beginning(self, values: Values, start: int, end: int) -> list[OpenWindow]:
        """Return the windows and panes that begin in a stretch of time, by their starts."""
        content = self._read(values)
        first, last = self._position(content, start), self._position(content, end)
        entries = _ENTRY.iter_unpack(content[first * _SIZE : last * _SIZE])
        return [OpenWindow._make(each) for each in entries]

    def overlapping(self, values: Values, start: int, end: int, form: Form) -> list[OpenWindow]:
        """Return the windows of a form that overlap a stretch of time, by their starts.

        The windows of this form must not overlap each other.
        """
        content = self._read(values)
        found: list[OpenWindow] = []
        position = self._position(content, end)
        while position > 0:
            position -= 1
            each = OpenWindow._make(_ENTRY.unpack_from(content, position * _SIZE))
            if each.is_pane or each[6:9] != form:
                continue
            if each.end <= start:
                break
            found.append(each)
        found.reverse()
        return found

    def due(self, values: Values, now: int, grace: int) -> list[OpenWindow]:
        """Return the windows and panes whose timers are due at ``now`` or before, or which may close.

        After a change of the grace, a window may close before its timer is due.
        """
        entries = _ENTRY.iter_unpack(self._read(values))
        return [
            OpenWindow._make(each) for each in entries if each[3] <= now or each[5] <= now - grace
        ]

    def changed(self, values: Values, now: int) -> list[OpenWindow]:
        """Return the windows that have changed since their last early result, if a result is due by ``now``."""
        entries = _ENTRY.iter_unpack(self._read(values))
        changed = [OpenWindow._make(each) for each in entries if each[4] != NO_UPDATE]
        return changed if any(each.update <= now for each in changed) else []

    def free_key(self, values: Values, start: int) -> int:
        """Return a key for a new window: its start, unless another window has that key."""
        content, key = self._read(values), _KEY.pack(start)
        position = content.find(key)
        while position >= 0 and position % _SIZE:  # found in another field
            position = content.find(key, position + 1)
        if position < 0:
            return start
        return min(_LEAST_START, *(each.key for each in _decoded(content))) - 1

    def add(self, values: Values, window: OpenWindow) -> None:
        """Add a window."""
        content = self._read(values)
        position = self._position(content, window.start) * _SIZE
        added = b"".join((content[:position], _ENTRY.pack(*window), content[position:]))
        self._write(values, added)
        self._found[_place(window)] = window
        if window.is_pane:
            self._has_panes = True

    def replace(self, values: Values, window: OpenWindow, **changes: Any) -> OpenWindow:
        """Change the due times of a window; return the changed window."""
        changed = window._replace(**changes)
        self.remove(values, [window])
        self.add(values, changed)
        return changed

    def remove(self, values: Values, windows: Iterable[OpenWindow]) -> None:
        """Remove windows."""
        content = self._read(values)
        removed = list(windows)
        for window in removed:
            self._found.pop(_place(window), None)
        if len(removed) == 1:
            entry = _ENTRY.pack(*removed[0])
            position = self._position(content, removed[0].start) * _SIZE
            while position < len(content) and content[position : position + _SIZE] != entry:
                position += _SIZE
            rest = content[:position] + content[position + _SIZE :]
        else:
            all_removed = set(removed)
            entries = _ENTRY.iter_unpack(content)
            rest = b"".join(_ENTRY.pack(*each) for each in entries if each not in all_removed)
        self._write(values, rest)

    @staticmethod
    def _position(content: bytes, start: int) -> int:
        """Return the number of windows that begin before ``start``."""
        unpack = _START.unpack_from
        return bisect_left(
            range(len(content) // _SIZE),
            start,
            key=lambda number: unpack(content, number * _SIZE)[0],
        )

    def _read(self, values: Values) -> bytes:
        current = values.current(OPEN_WINDOWS.name)
        if current is not self._value:
            self._content = b"" if current is None or current is UNSET else current.value
            self._found, self._has_panes = {}, None
            self._value = current
        return self._content

    def _write(self, values: Values, content: bytes) -> None:
        value = TypedValue(_TYPE.typename, content) if content else None
        values.changed[OPEN_WINDOWS.name] = value
        self._value, self._content = value, content
