# SPDX-License-Identifier: Apache-2.0
"""The values of windows, which are stored with their address.

Each value of a window is stored as a value of the address; its stored name ends with the window's key, such as
``count@1767225600000``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from statefun.sdk.state import State, attached, state_specs, write_changes
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import IN_WINDOW, present_names
from statefun.sdk.values import Values

_MOST_NAMES: Final = 1000
"""The largest number of windows for which the names of stored values are kept in memory."""


class WindowValues:
    """Reads, writes and deletes the values of windows of one class.

    Args:
        class_: the class of the windows.
    """

    def __init__(self, class_: type[State]) -> None:
        self._class = class_
        self.can_merge = callable(getattr(class_, "merge", None))
        """Whether the values of two windows can be merged into one."""
        self._specs = {spec.name: spec for spec in state_specs(class_)}
        self._renamed = present_names(self._specs)
        self._names: dict[int, dict[str, str]] = {}
        """For some windows, by key: the name under which each value is stored, by the name of the value."""

    def __reduce__(self) -> tuple[type[WindowValues], tuple[type[State]]]:
        return WindowValues, (self._class,)

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
