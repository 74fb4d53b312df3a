# SPDX-License-Identifier: Apache-2.0
"""The laws of event time, each with a sabotage that the model has to detect."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from statefun.engine import watermark
from statefun.engine.event_times import TaskTimes
from statefun.joins.as_of_calls import AsOfCalls
from statefun.joins.buffered import Buffer, Buffered
from statefun.joins.interval_calls import IntervalCalls
from statefun.joins.parameters import taken_by
from statefun.joins.tables import Table
from statefun.sdk.context import Context
from statefun.testing.channels import Channels
from statefun.windows import Hopping, Sliding, Tumbling, counted_windows
from statefun.windows.counted_windows import CountedWindows
from statefun.windows.open_windows import OpenWindows
from statefun.windows.pane_windows import PaneWindows
from statefun.windows.separate_windows import SeparateWindows
from statefun.windows.window_calls import WindowCalls
from statefun.windows.window_kinds import Assign

_between, _add = Buffer.between, Buffer.add
_tumbling, _hopping = Tumbling.assigner, Hopping.assigner
_holds, _close_counted = watermark._holds, CountedWindows._close
_keys = itertools.count()


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """Do nothing."""


def _none(*_arguments: Any, **_options: Any) -> Iterator[Any]:
    """Yield nothing."""
    return iter(())


def _later_end(self: Tumbling) -> Assign:
    assign = _tumbling(self)
    return lambda time: assign(time - 1)


def _first_of_hopping(self: Hopping) -> Assign:
    assign = _hopping(self)
    return lambda time: assign(time)[-1:]


def _longer(self: Sliding) -> Assign:
    size = round(self.size.total_seconds() * 1000)
    return lambda time: ((time - size, time + 1),)


def _closed_after(self: WindowCalls, context: Context, end: int) -> bool:
    now = context._watermark
    return now is not None and now > end + self._grace


def _closed_without_grace(_self: WindowCalls, context: Context, end: int) -> bool:
    return context._watermark is not None and context._watermark >= end


def _counted_at_any_wake_up(self: CountedWindows, call: Any, values: Any, _now: int) -> None:
    window = values.read(counted_windows.COUNTED_WINDOW.name)
    if window is not None:
        _close_counted(self, call, values, window, self._states.read(values, window.key))


def _without_last(self: Buffer, first: int, last: int) -> list[Buffered]:
    return _between(self, first, last - 1)


def _due_sooner(self: Buffer, time: int, due: int, *arguments: Any, **options: Any) -> None:
    _add(self, time, due - 1000, *arguments, **options)


def _time_without_check(_self: IntervalCalls, context: Context) -> int:
    time = context._event_time
    assert time is not None
    return time


def _newest_that_came(self: AsOfCalls, context: Context, buffer: Buffer, record: Buffered) -> None:
    if record.is_left:
        earlier = buffer.between(record.time - self._before, record.time)
        partners = [each for each in earlier if not each.is_left]
        if partners:
            newest = max(partners, key=lambda each: each.number)
            left, right = (self._value(context, buffer, each) for each in (record, newest))
            self._fun(context, left, right)
        else:
            IntervalCalls._let_go(self, context, buffer, record)


def _join_without_row(self: Table[Any], fun: Callable[..., Any]) -> Callable[..., Any]:
    def find(ctx: Context, value: Any) -> Any:
        return fun(ctx, value, None)

    values, _ = taken_by(fun, "value", "row")
    find.__annotations__ = {"value": values[0]}
    self._functions.register_handler(self.typename, values, find)
    return fun


def _fastest(values: Any, idle: Any, settings: Any, situation: Any) -> tuple[int | None, str, str]:
    active = set(situation.partitions) - set(idle)
    known = [values[each] for each in active if each in values]
    return max(known, default=None), "partition", ""


def _without_messages(facts: Any, waiting: Any, next_timer: Any) -> Iterator[Any]:
    return (each for each in _holds(facts, waiting, next_timer) if each[1] != "message")


def _without_timers(facts: Any, waiting: Any, _next_timer: Any) -> Iterator[Any]:
    return _holds(facts, waiting, None)


def _unordered(self: Channels, channels: Any) -> list[Any]:
    rows = [row for each in channels.values() for row in each]
    self._random.shuffle(rows)
    return rows


class Sabotage(NamedTuple):
    """A law that is broken."""

    law: str
    owner: Any
    """The class or module."""
    attribute: str
    replacement: Callable[..., Any]
    seeds: tuple[int, ...]
    """Seeds of small programs that detect it."""


SABOTAGES = {
    "late-end": Sabotage(
        "a tumbling window includes its start, and not its end",
        Tumbling,
        "assigner",
        _later_end,
        seeds=(46, 62),
    ),
    "one-window": Sabotage(
        "a record is in all hopping windows of its time",
        Hopping,
        "assigner",
        _first_of_hopping,
        seeds=(7, 16),
    ),
    "longer": Sabotage(
        "a sliding window is no longer than its size", Sliding, "assigner", _longer, seeds=(10, 17)
    ),
    "closed-after": Sabotage(
        "a record is late if the watermark is at the end",
        WindowCalls,
        "_is_closed",
        _closed_after,
        seeds=(15, 104, 125),
    ),
    "no-grace": Sabotage(
        "a window is open during its grace",
        WindowCalls,
        "_is_closed",
        _closed_without_grace,
        seeds=(34, 42),
    ),
    "passed-open": Sabotage(
        "a pane gets no record while windows that have passed need it",
        PaneWindows,
        "_close_passed",
        _nothing,
        seeds=(1122, 1147, 1411),
    ),
    "no-merge": Sabotage(
        "joined sessions have the records of both",
        SeparateWindows,
        "_join",
        _nothing,
        seeds=(185, 264, 349),
    ),
    "any-wake-up": Sabotage(
        "a counted window closes at its own timeout",
        CountedWindows,
        "_wake_up",
        _counted_at_any_wake_up,
        seeds=(33, 44),
    ),
    "closed-twice": Sabotage("a window closes once", OpenWindows, "remove", _nothing, seeds=(1, 3)),
    "without-last": Sabotage(
        "both ends of an interval belong to it", Buffer, "between", _without_last, seeds=(2, 4)
    ),
    "due-sooner": Sabotage(
        "a record waits until no partner can come", Buffer, "add", _due_sooner, seeds=(2, 5)
    ),
    "late-pairs": Sabotage(
        "a late record has no partners",
        IntervalCalls,
        "_time_of",
        _time_without_check,
        seeds=(0, 2),
    ),
    "newest-that-came": Sabotage(
        "the newest record of the time is valid",
        AsOfCalls,
        "_let_go",
        _newest_that_came,
        seeds=(18, 22),
    ),
    "no-row": Sabotage(
        "a join finds the row of the table", Table, "join", _join_without_row, seeds=(4, 13)
    ),
    "fastest": Sabotage(
        "the watermark waits for the slowest partition",
        watermark,
        "_of_partitions",
        _fastest,
        seeds=(0, 1),
    ),
    "never-idle": Sabotage(
        "the watermark does not wait for idle partitions", watermark, "_idle", _none, seeds=(0, 1)
    ),
    "no-messages": Sabotage(
        "the watermark passes no message under way",
        watermark,
        "_holds",
        _without_messages,
        seeds=(0, 1),
    ),
    "no-timers": Sabotage(
        "the watermark stops at each timer", watermark, "_holds", _without_timers, seeds=(0, 1)
    ),
    "no-long-calls": Sabotage(
        "the watermark passes no message of a long call",
        TaskTimes,
        "_hold_of",
        _nothing,
        seeds=(20, 37, 41),
    ),
    "unordered": Sabotage(
        "records of a key in a partition come in order",
        Channels,
        "merged",
        _unordered,
        seeds=(1, 2),
    ),
    "not-the-same": Sabotage(
        "a repeated micro-batch has the same effects, to the byte",
        OpenWindows,
        "free_key",
        lambda *_: next(_keys),
        seeds=(10, 13),
    ),
}


@contextmanager
def sabotaged(name: str) -> Iterator[None]:
    """Break a law."""
    each = SABOTAGES[name]
    with mock.patch.object(each.owner, each.attribute, each.replacement):
        yield
