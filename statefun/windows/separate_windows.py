# SPDX-License-Identifier: Apache-2.0
"""Windows that share no values: tumbling windows, sessions, and hopping windows without panes.

An address gets a wake-up at the event time at which one of its windows may close. A record is late for a window if the
watermark has come to the end of the window and its grace, whether the wake-up has been delivered or not: so a window
closes once, and replays give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from statefun.sdk.errors import FunctionError
from statefun.sdk.handlers import Handler
from statefun.sdk.values import Values
from statefun.windows.open_windows import NO_UPDATE, OpenWindow, OpenWindows
from statefun.windows.window_calls import WindowCalls
from statefun.windows.window_context import WindowContext, move_to
from statefun.windows.window_kinds import Hopping, Session, Sliding, Tumbling


class SeparateWindows(WindowCalls):
    """The object that is registered for a function whose windows share no values.

    Args:
        handler: the user's function for messages.
        kind: the kind of the windows.
        time: returns the event time of a value; None for the event time of its message.
    """

    def __init__(
        self,
        handler: Handler,
        kind: Tumbling | Hopping | Session | Sliding,
        time: Callable[[Any], datetime] | None,
    ) -> None:
        super().__init__(handler, kind, kind.grace, time)
        self._windows = kind.assigner()
        self._is_session = isinstance(kind, Session)
        self._open = OpenWindows()

    def _add(
        self, call: WindowContext, values: Values, time: int, fun: Callable[..., Any], value: Any
    ) -> None:
        closed = []
        windows = self._windows(time)
        for start, end in windows:
            window = self._opened(call, values, start, end)
            if window is None:
                closed.append((start, end))
                continue
            state = self._states.read(values, window[0])
            move_to(call, window[1], window[2], window[2] + self._grace)
            fun(call, value, state)
            if self.update is not None:
                if self.every:
                    self._update_later(call, values, window, time)
                else:
                    self.update(call, state)
            self._states.store(state, values, window[0])
        if closed:
            self._is_late(call, closed, value, is_lost=len(closed) == len(windows))

    def _opened(
        self, call: WindowContext, values: Values, start: int, end: int
    ) -> OpenWindow | None:
        """Return the window for a message, and open it if necessary; None if it is closed already."""
        if self._is_session:
            return self._session(call, values, start, end)
        if self._is_closed(call, end):
            return None
        window = self._open.find(values, start, end)
        return self._new(call, values, start, end) if window is None else window

    def _session(
        self, call: WindowContext, values: Values, start: int, end: int
    ) -> OpenWindow | None:
        """Return the session for a message, joined from all sessions that the message touches; None if it is closed."""
        own = self._open.overlapping(values, start, end)
        if own:
            start, end = min(start, own[0].start), max(end, own[-1].end)
        if self._is_closed(call, end):
            return None
        if not own:
            return self._new(call, values, start, end)
        due, update = min(each.due for each in own), min(each.update for each in own)
        session = own[0]._replace(start=start, end=end, due=due, update=update)
        for later in own[1:]:
            self._join(values, session.key, later.key)
        if own != [session]:
            self._open.remove(values, own)
            self._open.add(values, session)
        return session

    def _new(self, call: WindowContext, values: Values, start: int, end: int) -> OpenWindow:
        """Open a window, and plan a wake-up of its address for the time at which the window may close."""
        due = end + self._grace
        window = OpenWindow(self._open.free_key(values, start), start, end, due)
        self._open.add(values, window)
        self._wake_up_at(call, due)
        return window

    def _join(self, values: Values, key: int, later: int) -> None:
        state: Any = self._states.read(values, key)
        state.merge(self._states.read(values, later))
        self._states.store(state, values, key)
        self._states.delete(values, [later])

    def _update_later(
        self, call: WindowContext, values: Values, window: OpenWindow, time: int
    ) -> None:
        """Plan an early result of the window for the next multiple of ``every``, if the window is still open then."""
        update = self._next_update(call, time)
        if window.update > update or self._is_lost(call, window.update):
            self._open.replace(values, window, update=update)
            if update < self._closes(window):
                self._update_at(call, update)

    def _closes(self, window: OpenWindow) -> int:
        """Return the watermark at which a window closes."""
        return window.end + self._grace

    def _wake_up(self, call: WindowContext, values: Values, now: int) -> None:
        if self.every:
            self._show_changed(call, values, now)
        self._close_due(call, values, now, self._open.due(values, now))

    def _show_changed(self, call: WindowContext, values: Values, now: int) -> None:
        """Call the handler of early results with each window that has changed since its last early result."""
        for window in self._open.changed(values, now):
            closes = window.end + self._grace
            if self.update is not None and closes > now:
                move_to(call, window.start, window.end, closes)
                state = self._states.read(values, window.key)
                self.update(call, state)
                self._states.store(state, values, window.key)
            self._open.replace(values, window, update=NO_UPDATE)

    def _close_due(
        self, call: WindowContext, values: Values, now: int, due: Iterable[OpenWindow]
    ) -> None:
        """Close windows whose timers are due, in the order of their ends; a session that has grown stays open."""
        closed = []
        for window in sorted(due, key=lambda each: (each.end, each.start)):
            if window.is_pane:
                self._check_pane(call, window)
            if not self._is_over(call, values, window, now):
                continue
            if self.close is not None:
                move_to(call, window.start, window.end, self._closes(window))
                self.close(call, self._states.read(values, window.key))
            closed.append(window)
        if closed:
            self._states.delete(values, [each.key for each in closed])
            self._open.remove(values, closed)

    def _is_over(self, call: WindowContext, values: Values, window: OpenWindow, now: int) -> bool:
        """Return whether a window whose timer is due closes; if it does not, plan its next wake-up."""
        closes = self._closes(window)
        if closes <= now:
            return True
        self._open.replace(values, window, due=closes)  # a session that has grown, or the grace has
        self._wake_up_at(call, closes)
        return False

    def _check_pane(self, call: WindowContext, pane: OpenWindow) -> None:
        """Raise an error if a pane cannot be a part of the function's present windows.

        Raises:
            FunctionError: if the pane has another length than these windows, or than their panes.
        """
        if (pane.start, pane.end) not in self._windows(pane.start):
            raise pane_error(call)


def pane_error(call: WindowContext) -> FunctionError:
    """Return the error for a pane that cannot be a part of the present windows of its function."""
    return FunctionError(
        f"function {call.address.typename} at address {call.address}: windows that were opened as panes cannot close, as "
        "the class of the windows has no method merge(self, later) any more, or their kind is another one; restore both "
        "until these windows are closed"
    )
