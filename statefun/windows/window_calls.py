# SPDX-License-Identifier: Apache-2.0
"""Calls the handlers of a function with windows: for each message, and when a window closes.

An address gets a wake-up, a message of ``send_at``, at the event time at which a window of it may close. A
record is late for a window if the watermark has come to the end of the window and its grace, whether the wake-up
has been delivered or not: so a window closes once, and replays give the same result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from statefun.sdk.context import Context, context_values
from statefun.sdk.errors import FunctionError, LateMessageError
from statefun.sdk.handlers import Handler, Handlers
from statefun.sdk.message import Message
from statefun.sdk.times import from_epoch_millis, in_milliseconds, to_epoch_millis
from statefun.sdk.types import TypedValue
from statefun.sdk.values import Values
from statefun.windows.open_windows import OpenWindow, OpenWindows
from statefun.windows.window_context import WindowContext, WindowContexts, move_to
from statefun.windows.window_kinds import Session, WindowKind
from statefun.windows.window_state import WindowValues

_WAKE_UP = TypedValue("io.statefun.python/window-wake-up", b"")


class WindowCalls:
    """The callable of a function with windows.

    Args:
        handler: the user's function for messages; its state is the class of the windows.
        kind: the kind of the windows.
        time: returns the event time of a value; None for the event time of its message.
    """

    def __init__(
        self, handler: Handler, kind: WindowKind, time: Callable[[Any], datetime] | None
    ) -> None:
        if handler.state is None:
            raise AssertionError("a handler of windows has a state")
        functools.update_wrapper(self, handler.fun, updated=())
        self._decoder = Decoder((handler,))
        self._windows = kind.assigner()
        self._grace = in_milliseconds(kind.grace)
        self._is_session = isinstance(kind, Session)
        self._time = time
        self._open = OpenWindows()
        self._contexts = WindowContexts()
        self._states = WindowValues(handler.state)
        self.close: Callable[[Any, Any], Any] | None = None
        """Called with the context and the window when a window closes."""
        self.update: Callable[[Any, Any], Any] | None = None
        """Called with the context and the window after each message."""
        self.late: Callable[[Any, Any], Any] | None = None
        """Called with the context and the value of each message that is late for a window."""

    def __call__(self, context: Context, message: Message) -> None:
        """Handle a message or a wake-up."""
        values = context_values(context)
        if message.typed_value.typename == _WAKE_UP.typename:
            self._wake_up(context, values)
            return
        handler, value = self._decoder.decoded(message)
        time = context._event_time if self._time is None else None  # noqa: SLF001 - a datetime takes long to make
        if time is None:
            time = self._time_of(context, value)
        closed = []
        windows = self._windows(time)
        call = self._contexts.of(context)
        for start, end in windows:
            window = self._opened(context, values, start, end)
            if window is None:
                closed.append((start, end))
                continue
            key, start_, end_, _ = window
            state = self._states.read(values, key)
            move_to(call, start_, end_, end_ + self._grace)
            handler.fun(call, value, state)
            if self.update is not None:
                self.update(call, state)
            self._states.store(state, values, key)
        if closed:
            self._is_late(call, closed, value, is_lost=len(closed) == len(windows))

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

    def _opened(self, context: Context, values: Values, start: int, end: int) -> OpenWindow | None:
        """Return the window for a message, opened if necessary; None if it is closed."""
        if self._is_session:
            return self._session(context, values, start, end)
        if self._is_closed(context, end):
            return None
        window = self._open.find(values, start, end)
        return self._new(context, values, start, end) if window is None else window

    def _session(self, context: Context, values: Values, start: int, end: int) -> OpenWindow | None:
        """Return the session for a message, joined from all sessions that the message belongs to; None if it is closed."""
        own = self._open.overlapping(values, start, end)
        if own:
            start, end = min(start, own[0].start), max(end, own[-1].end)
        if self._is_closed(context, end):
            return None
        if not own:
            return self._new(context, values, start, end)
        session = own[0]._replace(start=start, end=end, due=min(each.due for each in own))
        for later in own[1:]:
            self._join(values, session.key, later.key)
        if own != [session]:
            self._open.remove(values, own)
            self._open.add(values, session)
        return session

    def _new(self, context: Context, values: Values, start: int, end: int) -> OpenWindow:
        """Open a window, and let its address be woken up when it may close."""
        due = end + self._grace
        window = OpenWindow(self._open.free_key(values, start), start, end, due)
        self._open.add(values, window)
        _wake_up_at(context, due)
        return window

    def _join(self, values: Values, key: int, later: int) -> None:
        state = self._states.read(values, key)
        merge: Any = getattr(state, "merge")  # noqa: B009 - checked when the function was registered
        merge(self._states.read(values, later))
        self._states.store(state, values, key)
        self._states.delete(values, [later])

    def _is_closed(self, context: Context, end: int) -> bool:
        watermark = context._watermark  # noqa: SLF001 - a datetime takes long to make
        return watermark is not None and watermark >= end + self._grace

    def _is_late(
        self, call: WindowContext, closed: Sequence[tuple[int, int]], value: Any, *, is_lost: bool
    ) -> None:
        """Call the handler for late messages, or raise an error for one that no window counts."""
        for start, end in closed:
            move_to(call, start, end, end + self._grace)
            if self.late is not None:
                self.late(call, value)
        if self.late is None and is_lost:
            window, address = call.window, call.address
            raise LateMessageError(
                f"function {address.typename} at address {address}: a message is late by {call.lateness}: "
                f"its window from {window.start.isoformat()} to {window.end.isoformat()} is closed"
            )

    def _wake_up(self, context: Context, values: Values) -> None:
        """Close all windows that are due, in the order of their ends.

        The watermark decides, too: a wake-up that comes back as a dead letter has no event time.
        """
        times = context._event_time, context._watermark  # noqa: SLF001 - as above
        now = max((each for each in times if each is not None), default=None)
        if now is None:
            return
        due = self._open.due(values, now)
        due.sort(key=lambda each: (each.end, each.start))
        closed = []
        for window in due:
            closes = window.end + self._grace
            if closes > now:  # a session that has become longer
                self._open.remove(values, [window])
                self._open.add(values, window._replace(due=closes))
                _wake_up_at(context, closes)
                continue
            if self.close is not None:
                call = self._contexts.of(context)
                move_to(call, window.start, window.end, closes)
                self.close(call, self._states.read(values, window.key))
            closed.append(window)
        if closed:
            self._states.delete(values, [each.key for each in closed])
            self._open.remove(values, closed)


def _wake_up_at(context: Context, due: int) -> None:
    """Send the context's address a wake-up in event time."""
    address = context.address
    context.send_at(from_epoch_millis(due), Message(address.typename, address.id, _WAKE_UP))


class Decoder(Handlers):
    """Decodes the messages of a function with windows."""

    decoded = Handlers._decoded  # noqa: SLF001 - its class is the base
