# SPDX-License-Identifier: Apache-2.0
"""Windows that close after a fixed number of records: an address has one open window at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from statefun.sdk.callables import refuse_coroutine
from statefun.sdk.context import Context
from statefun.sdk.handlers import Handler
from statefun.sdk.state import State
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import SimpleType
from statefun.sdk.value_spec import ValueSpec
from statefun.sdk.values import Values
from statefun.windows.open_windows import NO_UPDATE, OPEN_WINDOWS
from statefun.windows.window_calls import WindowCalls, stuck_error
from statefun.windows.window_context import WindowContext, move_to
from statefun.windows.window_kinds import Counted

_FORMAT = struct.Struct("<5q")


class CountedWindow(NamedTuple):
    """The open window of an address; times are in milliseconds since the epoch."""

    key: int
    """The number in the names of the window's values: the time of its first record."""
    start: int
    """The time of the earliest record."""
    end: int
    """The end of the window: a millisecond after the time of the latest record."""
    due: int
    """The event time at which the window closes at the latest."""
    records: int
    """How many records the window has had."""


def _encoded(window: CountedWindow) -> bytes:
    return _FORMAT.pack(*window)


def _decoded(content: bytes) -> CountedWindow:
    return CountedWindow._make(_FORMAT.unpack(content))


# Functions with names, as others could not be sent to workers.
_TYPE: SimpleType[CountedWindow] = SimpleType.simple_immutable_type_from(
    "io.statefun.python/counted-window", _encoded, _decoded
)
COUNTED_WINDOW = ValueSpec("counted_window", _TYPE)
"""The value of an address that stores its open window."""


class CountedWindows(WindowCalls):
    """The object that is registered for a function whose windows have a fixed number of records.

    Args:
        handler: the user's function for messages.
        kind: the kind of the windows.
        time: returns the event time of a value; None for the event time of its message.
    """

    def __init__(
        self, handler: Handler, kind: Counted, time: Callable[[Any], datetime] | None
    ) -> None:
        super().__init__(handler, kind, timedelta(0), time)
        self._size = kind.size
        self._timeout = None if kind.timeout is None else in_milliseconds(kind.timeout)

    def _add(
        self, call: WindowContext, values: Values, time: int, fun: Callable[..., Any], value: Any
    ) -> None:
        window: CountedWindow | None = values.read(COUNTED_WINDOW.name)
        if window is None:
            due = NO_UPDATE if self._timeout is None else time + self._timeout
            window = CountedWindow(time, time, time + 1, due, 1)
            if self._timeout is not None:
                self._wake_up_at(call, due)
        else:
            key, start, end, due, records = window
            window = CountedWindow(key, min(start, time), max(end, time + 1), due, records + 1)
        state = self._states.read(values, window.key)
        move_to(call, window.start, window.end, window.due)
        refuse_coroutine(fun(call, value, state))
        if self.update is not None:
            refuse_coroutine(self.update(call, state))
        if window.records >= self._size:
            self._close(call, values, window, state)
        else:
            self._states.store(state, values, window.key)
            values.write(COUNTED_WINDOW.name, window)

    def _check(self, context: Context, values: Values) -> None:
        if values.read(OPEN_WINDOWS.name) is not None:
            raise stuck_error(
                context, "the function had windows of another kind, and has counted windows now"
            )

    def _wake_up(self, call: WindowContext, values: Values, now: int) -> None:
        window: CountedWindow | None = values.read(COUNTED_WINDOW.name)
        if window is not None and window.due <= now:
            move_to(call, window.start, window.end, window.due)
            self._close(call, values, window, self._states.read(values, window.key))

    def _close(
        self, call: WindowContext, values: Values, window: CountedWindow, state: State
    ) -> None:
        if self.close is not None:
            refuse_coroutine(self.close(call, state))
        self._states.delete(values, [window.key])
        values.delete(COUNTED_WINDOW.name)
