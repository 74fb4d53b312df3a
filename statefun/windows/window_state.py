# SPDX-License-Identifier: Apache-2.0
"""The state of windows, which is stored with their address.

Each value of a window is a value of the address; its name is that of the value and the window's key, such as
``count@1767225600000``. One further value lists the open windows of the address.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from statefun.sdk.state import State, attached, state_specs, write_changes
from statefun.sdk.types import SimpleType, TypedValue
from statefun.sdk.value_spec import IN_WINDOW, ValueSpec, present_names
from statefun.sdk.values import UNSET, Values

_ENTRY = struct.Struct("<4q")
_MOST_NAMES = 1000
"""Of how many windows the names of values are kept in memory."""


class Window(State):
    """The state of a window: its annotations declare the values, as those of a :class:`~statefun.State` do.

    Each address has one for each window in which it has had a record, until the window closes. For windows of the
    kind :class:`~statefun.windows.Session`, the class has a method ``merge``, which adds a later session:

    >>> class Visit(Window):
    ...     pages: int = 0
    ...
    ...     def merge(self, later: "Visit") -> None:
    ...         self.pages += later.pages
    """

    __slots__ = ()

    __statefun_is_window__ = True


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


def _encoded(windows: Iterable[OpenWindow]) -> bytes:
    return b"".join(_ENTRY.pack(*each) for each in windows)


def _decoded(content: bytes) -> tuple[OpenWindow, ...]:
    return tuple(map(OpenWindow._make, _ENTRY.iter_unpack(content)))


_TYPE: SimpleType[tuple[OpenWindow, ...]] = SimpleType.simple_immutable_type_from(
    "io.statefun.python/windows", _encoded, _decoded
)
OPEN_WINDOWS = ValueSpec("windows", _TYPE)
"""The value of an address that lists its open windows."""


class OpenWindows:
    """Reads and writes the list of the open windows of addresses; remembers the list that was read last."""

    def __init__(self) -> None:
        self._value: TypedValue | None = UNSET
        self._windows: tuple[OpenWindow, ...] = ()

    def __reduce__(self) -> tuple[type[OpenWindows], tuple[()]]:
        return OpenWindows, ()

    def read(self, values: Values) -> tuple[OpenWindow, ...]:
        """Return the open windows of an address, in the order in which they were opened."""
        current = values.current(OPEN_WINDOWS.name)
        if current is not self._value:
            self._windows = () if current is None or current is UNSET else _decoded(current.value)
            self._value = current
        return self._windows

    def write(self, values: Values, windows: Iterable[OpenWindow]) -> None:
        """Store the open windows of an address."""
        rest = tuple(windows)
        if rest:
            values.write(OPEN_WINDOWS.name, rest)
        else:
            values.delete(OPEN_WINDOWS.name)


class WindowValues:
    """Reads, writes and deletes the values of windows of one class.

    Args:
        class_: the class of the windows.
    """

    def __init__(self, class_: type[State]) -> None:
        self._class = class_
        self._specs = {spec.name: spec for spec in state_specs(class_)}
        self._renamed = present_names(self._specs)
        self._names: dict[int, dict[str, str]] = {}
        """By key of some windows: the names under which their values are stored, by the names of the values."""

    def read(self, values: Values, key: int) -> State:
        """Return the state of a window, given the values of its address; changes must be stored with :meth:`store`."""
        changed, before = values.changed, values.stored
        stored: dict[str, TypedValue] = {}
        for name, full in self._stored_names(key).items():
            current = changed[full] if full in changed else before.get(full)
            if current is not None:
                stored[name] = current
        own = Values(self._specs, stored)
        if self._renamed:
            own.rename(self._renamed)
        return attached(self._class, own)

    def store(self, window: State, values: Values, key: int) -> None:
        """Store the changes of a window in the values of its address."""
        write_changes(window)
        changed, names = values.changed, self._stored_names(key)
        for name, change in window.__statefun_values__.changed.items():
            changed[names[name]] = change

    def delete(self, values: Values, keys: Sequence[int]) -> None:
        """Delete the values of windows, also those that their class no longer declares."""
        if not keys:
            return
        ends = set(map(str, keys))
        for name in {*values.stored, *values.changed}:
            _, separator, key = name.rpartition(IN_WINDOW)
            if separator and key in ends:
                values.changed[name] = None

    def _stored_names(self, key: int) -> dict[str, str]:
        names = self._names.get(key)
        if names is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            declared = (*self._specs, *self._renamed)
            names = self._names[key] = {name: f"{name}{IN_WINDOW}{key}" for name in declared}
        return names
