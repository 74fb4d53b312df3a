# SPDX-License-Identifier: Apache-2.0
"""The forms of windows: what an open window, or a pane, says about the kind of windows for which it was opened.

A program may change the kind of its windows while windows are open. Those go on as what they were opened for.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from statefun.sdk.times import in_milliseconds
from statefun.windows.window_kinds import Assign, Hopping, Panes, Session, Sliding, Tumbling


class Form(NamedTuple):
    """The kind of some windows, without their grace; all numbers are milliseconds.

    >>> Form.of(Tumbling(timedelta(minutes=1))) == Form.of(Hopping(timedelta(minutes=1), every=timedelta(minutes=1)))
    True
    """

    size: int
    """0 for sessions: they go on if their gap changes."""
    every: int
    """The time between the starts of two windows; 0 for sessions, and for sliding windows."""
    offset: int

    @classmethod
    def of(cls, kind: Tumbling | Hopping | Session | Sliding) -> Form:
        """Return the form of the windows of a kind."""
        if isinstance(kind, Session):
            return cls(0, 0, 0)
        size = in_milliseconds(kind.size)
        if isinstance(kind, Sliding):
            return cls(size, 0, 0)
        every = size if isinstance(kind, Tumbling) else in_milliseconds(kind.every)
        return cls(size, every, in_milliseconds(kind.offset) % every)


class Layout(NamedTuple):
    """How windows that share panes consist of these."""

    windows: Assign
    panes: Panes


@lru_cache(maxsize=100)
def layout_of(form: Form) -> Layout:
    """Return the layout of windows that overlap; sessions have none."""
    size, every, offset = (timedelta(milliseconds=each) for each in form)
    kind = Hopping(size, every=every, offset=offset) if every else Sliding(size)
    return Layout(kind.assigner(), kind.panes())
