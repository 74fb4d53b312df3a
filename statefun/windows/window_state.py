# SPDX-License-Identifier: Apache-2.0
"""The base class of users' windows."""

from __future__ import annotations

from statefun.sdk.state import State


class Window(State):
    """The state of a window: the annotations of a subclass declare the values, as in a :class:`~statefun.State`.

    An address has one such state for each window in which it has had a record, until the window closes. For windows of
    the kinds :class:`~statefun.windows.Session` and :class:`~statefun.windows.Sliding`, the class needs a method
    ``merge``, which adds the values of a later window:

    >>> class Visit(Window):
    ...     pages: int = 0
    ...
    ...     def merge(self, later: "Visit") -> None:
    ...         self.pages += later.pages
    """

    __slots__ = ()

    __statefun_is_window__ = True
