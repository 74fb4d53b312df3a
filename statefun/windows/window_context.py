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


class WindowContexts:
    """Makes the contexts of calls for windows; the messages of one invocation batch share one, as usual."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._made: WindowContext | None = None

    def __reduce__(self) -> tuple[type[WindowContexts], tuple[()]]:
        return WindowContexts, ()

    def of(self, context: Context) -> WindowContext:
        """Return the context of a function's call as one that can be moved to windows by :func:`move_to`."""
        made = self._made
        if made is None or context is not self._context:
            made = self._made = WindowContext(
                context.address,
                context._values,  # noqa: SLF001 - no part of the API
                context._sent,  # noqa: SLF001 - as above
                context._prepare,  # noqa: SLF001 - as above
                context._watermark,  # noqa: SLF001 - as above
                has_event_times=context._has_event_times,  # noqa: SLF001 - as above
            )
            self._context = context
            context._derived = made  # noqa: SLF001 - as above
        # What differs between the messages of a batch.
        made._event_time = context._event_time  # noqa: SLF001 - as above
        made._message = context._message  # noqa: SLF001 - as above
        made._trace = context._trace  # noqa: SLF001 - as above
        made.caller = context.caller
        return made


def move_to(context: WindowContext, start: int, end: int, closes: int) -> None:
    """Move a context to a window.

    Args:
        context: the context.
        start: the start of the window, in milliseconds since the epoch.
        end: its end.
        closes: the watermark at which it closes.
    """
    context._start = start  # noqa: SLF001 - no part of the API
    context._end = end  # noqa: SLF001 - as above
    context._closes = closes  # noqa: SLF001 - as above
