# SPDX-License-Identifier: Apache-2.0
"""Decides whether an application whose run has lost a worker begins another run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta

_MOST = 10
"""The largest number of restarts within :data:`_PERIOD`."""
_PERIOD = timedelta(minutes=10)


class Supervision:
    """The restarts of one application after lost workers.

    Spark runs a task once on one machine, so that the end of a worker process (out of memory, a crash in native code, a
    signal) fails the micro-batch and ends the query. Another run repeats the micro-batch. If that run
    loses a worker, too, before it has committed a micro-batch, the records of this micro-batch are the likely cause, and
    there is no further run.

    Args:
        newest: returns the number of the newest committed micro-batch.
        clock: gives the time in seconds.
    """

    def __init__(
        self, newest: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._newest = newest
        self._clock = clock
        self._before: int | None = None
        """The newest committed micro-batch at the last restart; None if there was none."""
        self._times: deque[float] = deque(maxlen=_MOST)

    def may_restart(self) -> bool:
        """Return whether another run may begin after one that has lost a worker; if so, count the restart."""
        now, newest = self._clock(), self._newest()
        if newest == self._before:
            return False
        if len(self._times) == _MOST and now - self._times[0] < _PERIOD.total_seconds():
            return False
        self._before = newest
        self._times.append(now)
        return True
