# SPDX-License-Identifier: Apache-2.0
"""The context of handlers of windows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from statefun.sdk.context import Context
from statefun.sdk.times import from_epoch_millis


class TimeWindow(NamedTuple):
    """The time of a window, in UTC."""

    start: datetime
    """The first moment of the window."""
    end: datetime
    """The end of the window; the window does not include it."""


class WindowContext(Context):
    """The context of a handler of windows: a :class:`~statefun.Context` that also knows the window.

    >>> from statefun import KafkaEgressMessage
    >>> def close(ctx: WindowContext, window) -> None:
    ...     text = f"{ctx.window.start}: {window.count}"
    ...     ctx.send(KafkaEgressMessage("com.example/out", topic="counts", key=ctx.address.id, value=text))
    """

    __slots__ = ("_closes", "_end", "_start")

    _start: int
    _end: int
    _closes: int

    @property
    def window(self) -> TimeWindow:
        """The time of the window."""
        return TimeWindow(from_epoch_millis(self._start), from_epoch_millis(self._end))

    @property
    def lateness(self) -> timedelta:
        """By how much the watermark has passed the moment at which the window closes; zero while it is open."""
        passed = 0 if self._watermark is None else self._watermark - self._closes
        return timedelta(milliseconds=max(passed, 0))


_SLOTS = tuple(Context.__slots__)


def in_window(context: Context, start: int, end: int, closes: int) -> WindowContext:
    """Return the context of a call for a window.

    Args:
        context: the context of the call of the function.
        start: the start of the window, in milliseconds since the epoch.
        end: its end.
        closes: the watermark at which it closes.
    """
    made = object.__new__(WindowContext)
    for name in _SLOTS:
        setattr(made, name, getattr(context, name))
    made._start, made._end, made._closes = start, end, closes
    return made
