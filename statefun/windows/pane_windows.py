# SPDX-License-Identifier: Apache-2.0
"""Windows that overlap, and share their records: sliding windows, and hopping windows whose class has ``merge``.

A record changes only the pane of its time. A window is merged from its panes when it closes, and a pane is deleted
when no further window needs it: so the size of the state does not depend on how many windows a record belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from statefun.sdk.callables import refuse_coroutine
from statefun.sdk.handlers import Handler
from statefun.sdk.values import Values
from statefun.windows.open_windows import opened
from statefun.windows.separate_windows import SeparateWindows, WindowPlace
from statefun.windows.window_context import WindowContext, move_to
from statefun.windows.window_kinds import Hopping, Sliding


class PaneWindows(SeparateWindows):
    """The object that is registered for a function whose windows share panes.

    A window that was opened before its class had ``merge`` has values of its own: they are merged with those of its panes.

    Args:
        handler: the user's function for messages.
        kind: the kind of the windows.
        time: returns the event time of a value; None for the event time of its message.
    """

    def __init__(
        self, handler: Handler, kind: Hopping | Sliding, time: Callable[[Any], datetime] | None
    ) -> None:
        super().__init__(handler, kind, time)
        self._panes = kind.panes()

    def _add(
        self, call: WindowContext, values: Values, time: int, fun: Callable[..., Any], value: Any
    ) -> None:
        windows = self._windows(time)
        pane = self._open.find(values, *self._panes.of(time), self._form, is_pane=True)
        # After the grace has become longer, the watermark does not show all windows that are closed.
        first_end = windows[0][1] if pane is None else pane.next_end
        closed = [
            (start, end) for start, end in windows if end < first_end or self._is_closed(call, end)
        ]
        if len(closed) < len(windows):
            if closed:
                self._close_passed(call, values)
            self._add_to_pane(call, values, time, fun, value)
        if closed:
            self._is_late(call, closed, value, is_lost=len(closed) == len(windows))

    def _close_passed(self, call: WindowContext, values: Values) -> None:
        """Close the windows that the watermark has passed, before their wake-up comes in this micro-batch.

        The current record is late for these windows, but not for others that share its pane: so these windows must
        close before the pane gets the record.
        """
        watermark, time = call._watermark, call._event_time  # noqa: SLF001 - a datetime takes long to make
        if watermark is not None:
            call._event_time = watermark  # noqa: SLF001 - as a wake-up has it
            self._close_due(call, values, watermark, self._open.due(values, watermark, self._grace))
            call._event_time = time  # noqa: SLF001 - as above

    def _add_to_pane(
        self, call: WindowContext, values: Values, time: int, fun: Callable[..., Any], value: Any
    ) -> None:
        start, end = self._panes.of(time)
        pane = self._open.find(values, start, end, self._form, is_pane=True)
        if pane is None:
            next_end = self._first_end(start, call._watermark)  # noqa: SLF001 - a datetime takes long to make
            due = next_end + self._grace
            window = opened(self._open.free_key(values, start), start, end, due, self._form)
            pane = window._replace(next_end=next_end, is_pane=True)
            self._open.add(values, pane)
            self._wake_up_at(call, due)
        state = self._states.read(values, pane.key)
        move_to(call, start, end, self._closes(pane))
        refuse_coroutine(fun(call, value, state))
        self._states.store(state, values, pane.key)
        if self.update is None:
            return
        if self.every:
            self._update_later(call, values, pane, time)
            return
        for first, last in self._windows(time):
            if not self._is_closed(call, last):
                place = WindowPlace(last, first, self._form)
                refuse_coroutine(
                    self.update(call, self._merged(call, values, place, self._parts(values, place)))
                )

    def _first_end(self, start: int, now: int | None) -> int:
        """Return the end of the first window of a new pane that is not closed."""
        for _, end in self._windows(start):
            if now is None or end + self._grace > now:
                return end
        return self._panes.last_end(start)
