# SPDX-License-Identifier: Apache-2.0
"""Decides when to look at folders again: seldom while nothing changes, and if a look takes long."""

from __future__ import annotations

from datetime import timedelta

_LOOK = timedelta(milliseconds=200)
"""The time between two looks at local folders in which nothing has changed."""
_REMOTE_LOOK = timedelta(seconds=5)
"""The same for folders where a look is a request, after some looks without a change."""
_LONGEST_LOOK = timedelta(seconds=30)
_SHARE = 10
"""Looks at large folders take a tenth of the time, up to the limit above."""


class LookPace:
    """The pauses between looks.

    >>> pace = LookPace(is_remote=True)
    >>> [pace.pause(timedelta(0), has_changed=False).total_seconds() for _ in range(3)]
    [0.2, 0.4, 0.8]
    """

    def __init__(self, *, is_remote: bool) -> None:
        self._longest_idle = _REMOTE_LOOK if is_remote else _LOOK
        self._idle = timedelta(0)

    def pause(self, duration: timedelta, *, has_changed: bool) -> timedelta:
        """Return the time until the next look.

        Args:
            duration: how long the last look took.
            has_changed: whether it has found a change.
        """
        doubled = max(_LOOK, min(2 * self._idle, self._longest_idle))
        self._idle = timedelta(0) if has_changed else doubled
        return min(max(self._idle, _SHARE * duration), _LONGEST_LOOK)
