# SPDX-License-Identifier: Apache-2.0
"""Remembers in the checkpoint that calls may be unfinished, so that a later bounded run waits for them.

A call of an earlier run is made again when its address wakes up, which takes up to ``RUN_CHECK``. Without the
file that this module writes, a bounded run could end before that.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from datetime import timedelta

from statefun.engine.left_calls import RUN_CHECK
from statefun.runtime.checkpoint.folder import Folder

logger = logging.getLogger("statefun")

_FILE = "unfinished-calls"
"""The name of the file that exists while calls may be unfinished; it is empty."""
_MARGIN = timedelta(seconds=1)
"""How late, at most, an address is expected to wake up."""


class UnfinishedCalls:
    """The file that says that calls which have left their micro-batches may be unfinished.

    Args:
        checkpoint: the query's checkpoint.
        monotonic: returns the time of a monotonic clock, in seconds.
    """

    def __init__(self, checkpoint: Folder, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._checkpoint = checkpoint
        self._monotonic = monotonic
        self._exists = checkpoint.has(_FILE)
        self._end = math.inf if self._exists else -math.inf
        """When this run will have made all calls of earlier runs again, in seconds of the monotonic clock."""

    def begin(self, trigger: timedelta) -> None:
        """Begin to count the time in which addresses wake up and make calls of earlier runs again.

        Args:
            trigger: the time between the beginnings of two micro-batches.
        """
        if self._end == math.inf:
            wait = RUN_CHECK + _MARGIN + trigger
            self._end = self._monotonic() + wait.total_seconds()
            logger.info(
                "an earlier run has left calls unfinished; they are made again within %s", wait
            )

    def may_be_made_again(self) -> bool:
        """Return whether unfinished calls of earlier runs possibly still wait to be made again.

        If earlier runs have left such calls, this is so for some seconds after the start of the query.
        """
        return self._monotonic() < self._end

    def remember(self) -> None:
        """Create the file, which tells the next run to wait; do nothing if the file exists.

        The file must exist before the commit of a micro-batch that a call has left.
        """
        if not self._exists:
            self._checkpoint.write(_FILE, b"")
            self._exists = True

    def forget(self) -> None:
        """Delete the file, unless calls of earlier runs possibly still wait to be made again.

        This method is called when all calls of the present run are finished.
        """
        if self._exists and not self.may_be_made_again():
            self._checkpoint.remove(_FILE)
            self._exists = False
