# SPDX-License-Identifier: Apache-2.0
"""The class of which users' windows are subclasses."""

from __future__ import annotations

from statefun.sdk.state import State


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
