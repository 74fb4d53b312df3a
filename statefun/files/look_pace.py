# SPDX-License-Identifier: Apache-2.0
"""Decides when folders are listed again: less often while nothing changes, or if a listing takes long."""

from __future__ import annotations

from datetime import timedelta

_LISTING = timedelta(milliseconds=200)
"""The time between two listings of local folders in which nothing has changed."""
_REMOTE_LISTING = timedelta(seconds=5)
"""While nothing changes, the pauses for remote folders grow to this time: a listing is a request."""
_LONGEST_PAUSE = timedelta(seconds=30)
_TIMES_DURATION = 10
"""A pause is at least this many times as long as the last listing took, but never above _LONGEST_PAUSE."""


class LookPace:
    """Chooses the pauses between two listings of the folders of an ingress.

    >>> pace = LookPace(is_remote=True)
    >>> [pace.pause(timedelta(0), has_changed=False).total_seconds() for _ in range(3)]
    [0.2, 0.4, 0.8]
    """

    def __init__(self, *, is_remote: bool) -> None:
        self._longest_idle = _REMOTE_LISTING if is_remote else _LISTING
        self._idle = timedelta(0)

    def pause(self, duration: timedelta, *, has_changed: bool) -> timedelta:
        """Return the time until the folders are listed again.

        Args:
            duration: how long the last listing took.
            has_changed: whether the last listing has found a change.
        """
        doubled = max(_LISTING, min(2 * self._idle, self._longest_idle))
        self._idle = timedelta(0) if has_changed else doubled
        return min(max(self._idle, _TIMES_DURATION * duration), _LONGEST_PAUSE)
