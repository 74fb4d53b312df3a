# SPDX-License-Identifier: Apache-2.0
"""A map that stays small although its keys may be anything, such as names of functions that clients invent."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST_NAMES: Final = 10_000
"""The number of names, such as typenames of functions, about which a process knows something at a time."""
_LOOKS: Final = 2
"""How many entries a new one looks at: as it may drop more than one, a map that has grown shrinks again."""


class BoundedMap(Generic[K, V]):
    """A map that drops the entries that were used longest ago once it has more than ``most``.

    A value that is needed is not dropped, so that a map has more entries while more are needed. The map may be used
    in any thread.

    Args:
        is_needed: returns whether a value must not be dropped now; by default, each may be.
        most: the largest number of entries if none is needed; at least 2.
    """

    def __init__(
        self, is_needed: Callable[[V], bool] = lambda _: False, most: int = MOST_NAMES
    ) -> None:
        self._is_needed = is_needed
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        """The values by their keys; the one that was used last is the last."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as used now; None if there is none."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            for _ in range(min(_LOOKS, len(self._values) - self._most)):
                oldest, other = self._values.popitem(last=False)
                if self._is_needed(other):  # the next look is at another one
                    self._values[oldest] = other
