# SPDX-License-Identifier: Apache-2.0
"""Calls the handlers of a function with windows: the part that all kinds of windows share."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from statefun.sdk.call_context import context_values
from statefun.sdk.callables import refuse_coroutine
from statefun.sdk.context import Context
from statefun.sdk.errors import FunctionError, LateMessageError
from statefun.sdk.handlers import Handler, Handlers
from statefun.sdk.message import Message
from statefun.sdk.sent import WakeUp
from statefun.sdk.times import in_milliseconds, to_epoch_millis
from statefun.sdk.values import Values
from statefun.sdk.waking import send_to_itself
from statefun.windows.window_context import WindowContext, WindowContexts, move_to
from statefun.windows.window_kinds import Hopping, Tumbling, WindowKind, step_of
from statefun.windows.window_values import WindowValues

_WAKE_UP = "io.statefun.python/window-wake-up"
_ROUNDING = 250
"""By how much the due time of a message in event time is rounded up, in milliseconds."""


class WindowCalls(ABC):
    """The object that is registered for a function with windows; it calls the user's handlers.

    Args:
        handler: the user's function for messages; its state is the class of the windows.
        kind: the kind of the windows.
        grace: how far the watermark passes the end of a window before the window closes.
        time: returns the event time of a value; None for the event time of its message.
    """

    def __init__(
        self,
        handler: Handler,
        kind: WindowKind,
        grace: timedelta,
        time: Callable[[Any], datetime] | None,
    ) -> None:
        if handler.state is None:
            raise AssertionError("a handler of windows has a state")
        functools.update_wrapper(self, handler.fun, updated=())
        self.decoder = Handlers((handler,))
        """Decodes values for the user's function."""
        self._grace = in_milliseconds(grace)
        self._step = step_of(kind)
        self._has_own_ends = not isinstance(kind, Tumbling | Hopping)
        """Whether the ends of windows depend on the records."""
        self._time = time
        self._contexts = WindowContexts()
        self._states = WindowValues(handler.state)
        self.close: Callable[[Any, Any], Any] | None = None
        """Called with the context and the window when a window closes."""
        self.update: Callable[[Any, Any], Any] | None = None
        """Called with the context and the window after each message, or at multiples of ``every``."""
        self.every = 0
        """The event time between two calls of ``update``, in milliseconds; 0 for a call after each message."""
        self.late: Callable[[Any, Any], Any] | None = None
        """Called with the context and the value of each message that is late for a window."""

    def __call__(self, context: Context, message: Message) -> None:
        """Handle a message or a wake-up."""
        values = context_values(context)
        if message.typed_value.typename != _WAKE_UP:
            handler, value = self.decoder.decoded(message)
            time = context._event_time if self._time is None else None  # noqa: SLF001 - a datetime takes long to make
            if time is None:
                time = self._time_of(context, value)
            self._check(context, values)
            self._add(self._contexts.of(context), values, time, handler.fun, value)
            return
        # The watermark decides, too: a wake-up that comes back as a dead letter has no event time.
        times = context._event_time, context._watermark  # noqa: SLF001 - as above
        now = max((each for each in times if each is not None), default=None)
        if now is not None:
            self._check(context, values)
            self._wake_up(self._contexts.of(context), values, now)

    @abstractmethod
    def _check(self, context: Context, values: Values) -> None:
        """Raise an error, before anything is changed, if the address has open windows that cannot close.

        Raises:
            FunctionError: if the present version of the program cannot close windows that a former one has opened.
        """

    @abstractmethod
    def _add(
        self, call: WindowContext, values: Values, time: int, fun: Callable[..., Any], value: Any
    ) -> None:
        """Call the handler with the windows of a message."""

    @abstractmethod
    def _wake_up(self, call: WindowContext, values: Values, now: int) -> None:
        """Close the windows that are due, in the order of their ends."""

    def _time_of(self, context: Context, value: Any) -> int:
        time = None if self._time is None else self._time(value)
        if time is None:
            raise FunctionError(
                f"function {context.address.typename} at address {context.address}: the message has no event time, so it "
                "belongs to no window: send it from a function that handles a record with event time, or give windowed "
                "the argument time"
            )
        if not (isinstance(time, datetime) and time.tzinfo is not None):
            raise FunctionError(
                f"function {context.address.typename} at address {context.address}: the argument time of windowed must "
                f"return a datetime with a time zone, not {time!r}"
            )
        return to_epoch_millis(time)

    def _is_closed(self, context: Context, end: int) -> bool:
        watermark = context._watermark  # noqa: SLF001 - as above
        return watermark is not None and watermark >= end + self._grace

    def _is_late(
        self, call: WindowContext, closed: Sequence[tuple[int, int]], value: Any, *, is_lost: bool
    ) -> None:
        """Call the handler for late messages once for each closed window of a message.

        If there is no such handler, and all windows of the message are closed, raise an error.
        """
        for start, end in closed:
            move_to(call, start, end, end + self._grace)
            if self.late is not None:
                refuse_coroutine(self.late(call, value))
        if self.late is None and is_lost:
            window, address = call.window, call.address
            raise LateMessageError(
                f"function {address.typename} at address {address}: a message is late by {call.lateness}: "
                f"its window from {window.start.isoformat()} to {window.end.isoformat()} is closed"
            )

    def _wake_up_at(self, call: WindowContext, due: int) -> None:
        """Wake the address up when the watermark reaches ``due``.

        If the windows of each address end at times of their own, as sessions do, ``due`` is rounded up, so that
        addresses wake up together.
        """
        if self._has_own_ends:
            due = -(-due // self._step) * self._step
        send_to_itself(call, WakeUp(due, _WAKE_UP, self._step))

    def _update_at(self, call: WindowContext, update: int) -> None:
        """Wake the address up at a time for early results."""
        send_to_itself(call, WakeUp(update, _WAKE_UP, self.every))

    def _next_update(self, call: WindowContext, time: int) -> int:
        """Return the event time of the next early result of a message's windows: the next multiple of ``every``."""
        watermark = call._watermark  # noqa: SLF001 - as above
        newest = time if watermark is None else max(time, watermark)
        return (newest // self.every + 1) * self.every

    @staticmethod
    def _is_lost(call: WindowContext, due: int) -> bool:
        """Return whether a wake-up for ``due`` must have come already, and had no effect because a handler failed."""
        watermark = call._watermark  # noqa: SLF001 - as above
        return watermark is not None and watermark > due + _ROUNDING


def stuck_error(context: Context, reason: str) -> FunctionError:
    """Return the error for an address whose open windows cannot be closed by the present version of the program."""
    return FunctionError(
        f"function {context.address.typename} at address {context.address}: windows that are open cannot be closed: {reason}. "
        "Nothing was changed: restore this part of the program until the windows are closed"
    )
