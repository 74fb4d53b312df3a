# SPDX-License-Identifier: Apache-2.0
"""The kinds of windows: which windows a record belongs to, by its event time.

A window includes its start, and excludes its end. Times are in milliseconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import attrs

from statefun.sdk.errors import DefinitionError
from statefun.sdk.times import check_duration, in_milliseconds
from statefun.sdk.waking import unit_of

Assign = Callable[[int], Sequence[tuple[int, int]]]
"""Returns the start and end of each window that an event time belongs to, by their ends."""


class Panes(NamedTuple):
    """How windows that overlap consist of panes."""

    of: Callable[[int], tuple[int, int]]
    """Returns the start and end of the pane of an event time."""
    last_end: Callable[[int], int]
    """Returns until when windows need the pane with a start: no window that has it ends later."""


_NOTHING = timedelta(0)
_MOST_PANES = 1000
"""The largest number of hopping windows that a record belongs to."""


def _positive(_instance: Any, attribute: attrs.Attribute[timedelta], value: object) -> None:
    check_duration(f"the {attribute.name} of a window", value)


def _not_negative(_instance: Any, attribute: attrs.Attribute[timedelta], value: object) -> None:
    check_duration(f"the {attribute.name} of a window", value, may_be_zero=True)


@attrs.frozen
class Tumbling:
    """Windows of one size, one after another, such as each hour; each record belongs to one of them.

    >>> Tumbling(timedelta(minutes=5), grace=timedelta(minutes=1)).size
    datetime.timedelta(seconds=300)

    Raises:
        DefinitionError: if the size is not positive, or another duration is negative.
    """

    size: timedelta = attrs.field(validator=_positive)
    """The duration of a window."""
    grace: timedelta = attrs.field(default=_NOTHING, validator=_not_negative, kw_only=True)
    """How far the watermark passes the end of a window before the window closes."""
    offset: timedelta = attrs.field(default=_NOTHING, validator=_not_negative, kw_only=True)
    """By how much the starts of windows are after multiples of the size since 1970 in UTC, such as for time zones."""

    def assigner(self) -> Assign:
        """Return a function that finds the window of an event time."""
        size, offset = in_milliseconds(self.size), in_milliseconds(self.offset)

        def windows(time: int) -> Sequence[tuple[int, int]]:
            start = time - (time - offset) % size
            return ((start, start + size),)

        return windows


@attrs.frozen
class Hopping:
    """Windows of one size that start regularly and overlap, such as the last hour, every five minutes.

    A record belongs to ``size / every`` windows. If the class of the windows has a method ``merge``, they share panes:
    a record changes only the pane of its time, and windows are merged from panes when they close.

    >>> hopping = Hopping(timedelta(hours=1), every=timedelta(minutes=5))
    >>> len(hopping.assigner()(0))
    12

    Raises:
        DefinitionError: if a duration is not positive, the windows do not overlap, or a record would belong to
            more than a thousand.
    """

    size: timedelta = attrs.field(validator=_positive)
    """The duration of a window."""
    every: timedelta = attrs.field(validator=_positive, kw_only=True)
    """The time between the starts of two windows."""
    grace: timedelta = attrs.field(default=_NOTHING, validator=_not_negative, kw_only=True)
    """How far the watermark passes the end of a window before the window closes."""
    offset: timedelta = attrs.field(default=_NOTHING, validator=_not_negative, kw_only=True)
    """By how much the starts of windows are after multiples of ``every`` since 1970 in UTC."""

    def __attrs_post_init__(self) -> None:
        if not self.every <= self.size <= self.every * _MOST_PANES:
            raise DefinitionError(
                f"a hopping window must be as long as the time between two starts, and at most {_MOST_PANES} times as "
                f"long: its size is {self.size}, and every is {self.every}"
            )

    def assigner(self) -> Assign:
        """Return a function that finds the windows of an event time, in order."""
        size, every = in_milliseconds(self.size), in_milliseconds(self.every)
        offset = in_milliseconds(self.offset)

        def windows(time: int) -> Sequence[tuple[int, int]]:
            last = time - (time - offset) % every
            count = -(-(size - (time - last)) // every)
            starts = range(last - (count - 1) * every, last + 1, every)
            return [(start, start + size) for start in starts]

        return windows

    def panes(self) -> Panes:
        """Return how windows are divided into panes; a pane is either wholly inside a window or wholly outside it."""
        size, every = in_milliseconds(self.size), in_milliseconds(self.every)
        offset, length = in_milliseconds(self.offset), math.gcd(size, every)

        def pane(time: int) -> tuple[int, int]:
            start = time - (time - offset) % length
            return start, start + length

        return Panes(pane, lambda start: start - (start - offset) % every + size)


@attrs.frozen
class Session:
    """Windows of activity: a session ends when no record has come for a while.

    Records of one key belong together if the time between two of them is less than ``gap``. A record between two
    sessions joins them: the method ``merge`` of the window's class adds the later session to the earlier one.

    >>> Session(gap=timedelta(minutes=30)).assigner()(0)
    ((0, 1800000),)

    Raises:
        DefinitionError: if the gap is not positive, or the grace is negative.
    """

    gap: timedelta = attrs.field(validator=_positive)
    """The time without records after which a session has ended."""
    grace: timedelta = attrs.field(default=_NOTHING, validator=_not_negative, kw_only=True)
    """How far the watermark passes the end of a session before the session closes."""

    def assigner(self) -> Assign:
        """Return a function that makes the session of a single record from the record's event time."""
        gap = in_milliseconds(self.gap)
        return lambda time: ((time, time + gap),)


@attrs.frozen
class Sliding:
    """For each record, the window that ends with it: the records of the last minutes, as they were at that moment.

    A window has the records of its address from less than ``size`` before the time of a record until this time.
    Records of one time have one window. A record is stored once, for all windows that it belongs to; so the class of
    the windows needs a method ``merge``.

    >>> Sliding(timedelta(minutes=5)).assigner()(300_000)
    ((1, 300001),)

    Raises:
        DefinitionError: if the size is not positive, or the grace is negative.
    """

    size: timedelta = attrs.field(validator=_positive)
    """The duration of a window."""
    grace: timedelta = attrs.field(default=_NOTHING, validator=_not_negative, kw_only=True)
    """How far the watermark passes the time of a record before its window closes."""

    def assigner(self) -> Assign:
        """Return a function that finds the window of an event time: it ends a millisecond after that time."""
        size = in_milliseconds(self.size)
        return lambda time: ((time + 1 - size, time + 1),)

    def panes(self) -> Panes:
        """Return how windows consist of panes."""
        size = in_milliseconds(self.size)
        # Panes of near times are forgotten together, so that an address is not woken up for each.
        return Panes(lambda time: (time, time + 1), lambda start: (start // size + 2) * size)


@attrs.frozen
class Counted:
    """Windows of a fixed number of records, in the order in which they come: a window closes with its last record.

    No record is late. The window's time is that of its records, from the earliest to the latest.

    >>> Counted(100, timeout=timedelta(minutes=5)).size
    100

    Raises:
        DefinitionError: if the size or the timeout is not positive.
    """

    size: int = attrs.field()
    """The number of records of a window."""
    timeout: timedelta | None = attrs.field(
        default=None, validator=attrs.validators.optional(_positive), kw_only=True
    )
    """How far the watermark passes the time of the first record before an incomplete window closes; None: never."""

    @size.validator
    def _check_size(self, _attribute: attrs.Attribute[int], value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DefinitionError(
                f"the size of a counted window must be a positive number of records, not {value!r}"
            )


WindowKind = Tumbling | Hopping | Sliding | Session | Counted


def step_of(kind: WindowKind) -> int:
    """Return the step between the event times at which addresses may be woken up, in milliseconds.

    >>> step_of(Tumbling(timedelta(minutes=5))), step_of(Session(timedelta(minutes=30)))
    (300000, 18000)
    """
    if isinstance(kind, Tumbling):
        return in_milliseconds(kind.size)
    if isinstance(kind, Hopping):
        return in_milliseconds(kind.every)
    if isinstance(kind, Session):
        return unit_of(in_milliseconds(kind.gap))
    wait = kind.grace if isinstance(kind, Sliding) else kind.timeout
    return unit_of(0 if wait is None else in_milliseconds(wait))
