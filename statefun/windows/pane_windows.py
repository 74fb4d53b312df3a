# SPDX-License-Identifier: Apache-2.0
"""Windows that overlap, and share their records: sliding windows, and hopping windows whose class has ``merge``.

A record changes only the pane of its time. A window is merged from its panes when it closes, and a pane is deleted
when no further window needs it: so the size of the state does not depend on how many windows a record belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from statefun.sdk.handlers import Handler
from statefun.sdk.state import State
from statefun.sdk.values import Values
from statefun.windows.open_windows import NO_UPDATE, OpenWindow
from statefun.windows.separate_windows import SeparateWindows, pane_error
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
        self._kind = kind
        self._pane_of, self._last_end = kind.panes()

    def _add(
        self, call: WindowContext, values: Values, time: int, fun: Callable[..., Any], value: Any
    ) -> None:
        windows = self._windows(time)
        closed = [(start, end) for start, end in windows if self._is_closed(call, end)]
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
            self._close_due(call, values, watermark, self._open.due(values, watermark))
            call._event_time = time  # noqa: SLF001 - as above

    def _add_to_pane(
        self, call: WindowContext, values: Values, time: int, fun: Callable[..., Any], value: Any
    ) -> None:
        start, end = self._pane_of(time)
        pane = self._open.find(values, start, end)
        if pane is None:
            due = self._next_due(start, call._watermark)  # noqa: SLF001 - a datetime takes long to make
            pane = OpenWindow(self._open.free_key(values, start), start, end, due, is_pane=True)
            self._open.add(values, pane)
            self._wake_up_at(call, due)
        state = self._states.read(values, pane.key)
        move_to(call, start, end, self._last_end(start) + self._grace)
        fun(call, value, state)
        self._states.store(state, values, pane.key)
        if self.update is None:
            return
        if self.every:
            self._update_later(call, values, pane, time)
            return
        for window in self._windows(time):
            if not self._is_closed(call, window[1]):
                self.update(call, self._merged(call, values, *window))

    def _closes(self, window: OpenWindow) -> int:
        end = self._last_end(window.start) if window.is_pane else window.end
        return end + self._grace

    def _next_due(self, start: int, now: int | None) -> int:
        """Return when the next window of a pane closes; after the last one, when the pane is deleted."""
        for _, end in self._windows(start):
            if now is None or end + self._grace > now:
                return end + self._grace
        return self._last_end(start) + self._grace

    def _parts(self, values: Values, start: int, end: int) -> list[OpenWindow]:
        """Return what a window consists of: the window from before it had panes, if there is one, and its panes."""
        parts = [
            each
            for each in self._open.overlapping(values, start, end)
            if (
                start <= each.start and each.end <= end
                if each.is_pane
                else each[1:3] == (start, end)
            )
        ]
        return sorted(parts, key=lambda each: each.is_pane)

    def _merged(self, call: WindowContext, values: Values, start: int, end: int) -> State:
        """Return the state of a window, merged from its parts; move the context of the call to this window."""
        first, *others = self._parts(values, start, end)
        window: Any = self._states.read(values, first.key)
        for each in others:
            window.merge(self._states.read(values, each.key))
        move_to(call, start, end, end + self._grace)
        return window  # type: ignore[no-any-return] # as the class that the user has given

    def _show_changed(self, call: WindowContext, values: Values, now: int) -> None:
        changed = self._open.changed(values, now)
        if self.update is not None:
            for start, end in _by_end(self._windows_of(changed)):
                if end + self._grace > now:
                    self.update(call, self._merged(call, values, start, end))
        for each in changed:
            self._open.replace(values, each, update=NO_UPDATE)

    def _windows_of(self, parts: Iterable[OpenWindow]) -> set[tuple[int, int]]:
        """Return the windows that some panes, and windows from before there were panes, belong to."""
        windows: set[tuple[int, int]] = set()
        for each in parts:
            windows.update(self._windows(each.start) if each.is_pane else [(each.start, each.end)])
        return windows

    def _close_due(
        self, call: WindowContext, values: Values, now: int, due: Iterable[OpenWindow]
    ) -> None:
        due = list(due)
        panes = [each for each in due if each.is_pane]
        for pane in panes:
            self._check_pane(call, pane)
        # A grace that was longer has not kept the last window of a pane from closing.
        windows = {
            window
            for pane in panes
            for window in self._windows(pane.start)
            if min(pane.due, self._closes(pane)) <= window[1] + self._grace <= now
        }
        for each in due:
            if not each.is_pane and self._is_over(call, values, each, now):
                windows.add((each.start, each.end))
        over = []
        for start, end in _by_end(windows):
            over += [each for each in self._parts(values, start, end) if not each.is_pane]
            if self.close is not None:
                self.close(call, self._merged(call, values, start, end))
        if over:
            self._states.delete(values, [each.key for each in over])
            self._open.remove(values, over)
        self._move_on(call, values, panes, now)

    def _check_pane(self, call: WindowContext, pane: OpenWindow) -> None:
        if isinstance(self._kind, Sliding) and (pane.start, pane.end) != self._pane_of(pane.start):
            raise pane_error(call)

    def _move_on(
        self, call: WindowContext, values: Values, panes: list[OpenWindow], now: int
    ) -> None:
        """Delete the panes that no window needs any longer; plan a wake-up for the next window of each other pane."""
        over, asked = [], set()
        for pane in panes:
            due = self._next_due(pane.start, now)
            if due <= now:
                over.append(pane)
                continue
            if due not in asked:
                self._wake_up_at(call, due)
                asked.add(due)
            self._open.replace(values, pane, due=due)
        if over:
            self._states.delete(values, [each.key for each in over])
            self._open.remove(values, over)


def _by_end(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(windows, key=lambda window: (window[1], window[0]))
