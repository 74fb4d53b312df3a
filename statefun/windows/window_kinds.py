# SPDX-License-Identifier: Apache-2.0
"""The kinds of windows: which windows a record belongs to, by its event time.

A window includes its start, and excludes its end. Times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import attrs

from statefun.sdk.errors import DefinitionError
from statefun.sdk.times import in_milliseconds

Assign = Callable[[int], Sequence[tuple[int, int]]]
"""Returns the start and end of each window that an event time belongs to."""

_NOTHING = timedelta(0)
_MOST_PANES = 1000
"""The largest number of hopping windows that a record belongs to, each of which it changes."""


def _check(name: str, value: object, *, may_be_zero: bool = False) -> None:
    least = _NOTHING if may_be_zero else timedelta(milliseconds=1)
    if not (isinstance(value, timedelta) and value >= least):
        kind = "a timedelta that is not negative" if may_be_zero else "a positive timedelta"
        raise DefinitionError(f"the {name} of a window must be {kind}, not {value!r}")
    if value % timedelta(milliseconds=1):
        raise DefinitionError(f"the {name} of a window must be whole milliseconds, not {value!r}")


def _positive(_instance: Any, attribute: attrs.Attribute[timedelta], value: object) -> None:
    _check(attribute.name, value)


def _not_negative(_instance: Any, attribute: attrs.Attribute[timedelta], value: object) -> None:
    _check(attribute.name, value, may_be_zero=True)


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

    A record belongs to ``size / every`` windows, and changes the state of each of them.

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
        """Return a function that makes a session of an event time alone."""
        gap = in_milliseconds(self.gap)
        return lambda time: ((time, time + gap),)


WindowKind = Tumbling | Hopping | Session
