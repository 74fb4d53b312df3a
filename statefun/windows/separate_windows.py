# SPDX-License-Identifier: Apache-2.0
"""Windows that share no values: tumbling windows, sessions, and hopping windows without panes.

An address gets a wake-up at the event time at which one of its windows may close. A record is late for a window if the
watermark has come to the end of the window and its grace, whether the wake-up has been delivered or not: so a window
closes once, and replays give the same result.

An address may have windows, and panes of windows, that were opened for another kind, by an earlier version of the
program. They close as windows of that kind, and get no further records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from statefun.sdk.callables import refuse_coroutine
from statefun.sdk.context import Context
from statefun.sdk.handlers import Handler
from statefun.sdk.state import State
from statefun.sdk.values import Values
from statefun.windows.counted_windows import COUNTED_WINDOW
from statefun.windows.open_windows import NO_UPDATE, OpenWindow, OpenWindows, opened
from statefun.windows.window_calls import WindowCalls, stuck_error
from statefun.windows.window_context import WindowContext, move_to
from statefun.windows.window_forms import Form, layout_of
from statefun.windows.window_kinds import Hopping, Session, Sliding, Tumbling


class WindowPlace(NamedTuple):
    """A window of an address: the order of places is that in which windows close."""

    end: int
    start: int
    form: Form


def _places(window: OpenWindow) -> list[WindowPlace]:
    """Return the window itself, or the windows of a pane that are not closed, by their ends."""
    form = window.form
    if not window.is_pane:
        return [WindowPlace(window.end, window.start, form)]
    windows = layout_of(form).windows(window.start)
    return [WindowPlace(end, start, form) for start, end in windows if end >= window.next_end]


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
        self._form = Form.of(kind)
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
            refuse_coroutine(fun(call, value, state))
            if self.update is not None:
                if self.every:
                    self._update_later(call, values, window, time)
                else:
                    refuse_coroutine(self.update(call, state))
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
        window = self._open.find(values, start, end, self._form)
        return self._new(call, values, start, end) if window is None else window

    def _session(
        self, call: WindowContext, values: Values, start: int, end: int
    ) -> OpenWindow | None:
        """Return the session for a message, joined from all sessions that the message touches; None if it is closed."""
        own = self._open.overlapping(values, start, end, self._form)
        if own:
            start, end = min(start, own[0].start), max(end, own[-1].end)
        if self._is_closed(call, end):
            return None
        if not own:
            return self._new(call, values, start, end)
        due, update = min(each.due for each in own), min(each.update for each in own)
        session = own[0]._replace(start=start, end=end, next_end=end, due=due, update=update)
        for later in own[1:]:
            self._join(values, session.key, later.key)
        if own != [session]:
            self._open.remove(values, own)
            self._open.add(values, session)
        return session

    def _new(self, call: WindowContext, values: Values, start: int, end: int) -> OpenWindow:
        """Open a window, and plan a wake-up of its address for the time at which the window may close."""
        due = end + self._grace
        window = opened(self._open.free_key(values, start), start, end, due, self._form)
        self._open.add(values, window)
        self._wake_up_at(call, due)
        return window

    def _join(self, values: Values, key: int, later: int) -> None:
        state: Any = self._states.read(values, key)
        refuse_coroutine(state.merge(self._states.read(values, later)))
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
        """Return the watermark at which a window closes, or the last window of a pane."""
        end = layout_of(window.form).panes.last_end(window.start) if window.is_pane else window.end
        return end + self._grace

    def _wake_up(self, call: WindowContext, values: Values, now: int) -> None:
        if self.every:
            self._show_changed(call, values, now)
        self._close_due(call, values, now, self._open.due(values, now, self._grace))

    def _check(self, context: Context, values: Values) -> None:
        if not self._states.can_merge and self._open.has_panes(values):
            raise stuck_error(
                context, "the class of the windows has no method merge(self, later) any more"
            )
        if values.read(COUNTED_WINDOW.name) is not None:
            raise stuck_error(
                context, "the function had counted windows, and has windows of another kind now"
            )

    def _show_changed(self, call: WindowContext, values: Values, now: int) -> None:
        """Call the handler of early results with each window that has changed since its last early result."""
        changed = self._open.changed(values, now)
        if self.update is not None:
            for place in sorted({place for each in changed for place in _places(each)}):
                closes = place.end + self._grace
                if closes > now:
                    parts = self._parts(values, place)
                    state = self._merged(call, values, place, parts)
                    refuse_coroutine(self.update(call, state))
                    if len(parts) == 1 and not parts[0].is_pane:
                        self._states.store(state, values, parts[0].key)
        for each in changed:
            self._open.replace(values, each, update=NO_UPDATE)

    def _parts(self, values: Values, place: WindowPlace) -> list[OpenWindow]:
        """Return what a window consists of: the values that it has alone, if it has any, and its panes."""
        end, start, form = place
        if not self._open.has_panes(values):
            window = self._open.find(values, start, end, form)
            return [] if window is None else [window]
        parts = [
            each
            for each in self._open.beginning(values, start, end)
            if each.form == form
            and (each.end <= end if each.is_pane else (each.start, each.end) == (start, end))
        ]
        return sorted(parts, key=lambda each: each.is_pane)

    def _merged(
        self, call: WindowContext, values: Values, place: WindowPlace, parts: list[OpenWindow]
    ) -> State:
        """Return the state of a window, merged from its parts; move the context of the call to this window."""
        window: Any = self._states.read(values, parts[0].key)
        for each in parts[1:]:
            refuse_coroutine(window.merge(self._states.read(values, each.key)))
        move_to(call, place.start, place.end, place.end + self._grace)
        return window  # type: ignore[no-any-return] # as the class that the user has given

    def _close_due(
        self, call: WindowContext, values: Values, now: int, due: list[OpenWindow]
    ) -> None:
        """Close windows whose timers are due, in the order of their ends; a session that has grown stays open."""
        panes = [each for each in due if each.is_pane]
        separate = [each for each in due if not each.is_pane]
        over = [each for each in separate if self._is_over(call, values, each, now)]
        places = {place for each in (*panes, *over) for place in _places(each)}
        closed = []
        for place in sorted(places):
            if place.end + self._grace <= now:
                parts = self._parts(values, place)
                if self.close is not None:
                    refuse_coroutine(self.close(call, self._merged(call, values, place, parts)))
                closed += [each for each in parts if not each.is_pane]
        closed += self._moved_on(call, values, panes, now)
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

    def _moved_on(
        self, call: WindowContext, values: Values, panes: Iterable[OpenWindow], now: int
    ) -> list[OpenWindow]:
        """Return the panes that no window needs any longer; plan a wake-up for the next window of each other pane."""
        over, planned = [], set()
        for pane in panes:
            ends = [place.end for place in _places(pane) if place.end + self._grace > now]
            end = ends[0] if ends else layout_of(pane.form).panes.last_end(pane.start)
            due = end + self._grace
            if due <= now:
                over.append(pane)
                continue
            if due not in planned:
                self._wake_up_at(call, due)
                planned.add(due)
            self._open.replace(values, pane, due=due, next_end=end)
        return over
