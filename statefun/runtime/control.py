# SPDX-License-Identifier: Apache-2.0
"""What people may order of a running application: to pause parts of it, to drain, to restart, to stop."""

from __future__ import annotations

import threading
from enum import Enum, auto

from statefun.runtime.checkpoint.pauses import Pauses


class Ending(Enum):
    """Why a run ends before its end."""

    SIGNAL = auto()
    """By a signal or by the program: the application ends as interrupted."""
    STOP = auto()
    """By an order: the application ends successfully."""
    RESTART = auto()
    """By an order: another run of the application begins."""


class Control:
    """The orders to one application, across its runs; may be used in any thread."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        """An event that is set when the present run is to end."""
        self.ending: Ending | None = None
        """Why the present run is to end; None if it is not."""
        self.is_draining = False
        """Whether the run reads no more records, and ends when everything is delivered and published."""
        self._pauses: Pauses | None = None
        self._lock = threading.Lock()

    @property
    def pauses(self) -> Pauses:
        """The paused parts, once the application has begun to run."""
        if self._pauses is None:
            raise RuntimeError("the application does not run yet")
        return self._pauses

    @property
    def is_begun(self) -> bool:
        """Whether the application has begun to run."""
        return self._pauses is not None

    def begin(self, pauses: Pauses) -> None:
        """Set the paused parts, when the application begins to run and has locked its checkpoint."""
        self._pauses = pauses

    def end(self, ending: Ending) -> None:
        """End the present run soon; a signal counts more than an order to stop, and that more than a restart."""
        with self._lock:
            if self.ending is None or ending.value < self.ending.value:
                self.ending = ending
        self.stopping.set()

    def drain(self) -> None:
        """Read no more records; end the run when everything is delivered and published."""
        self.is_draining = True

    def is_restarted(self) -> bool:
        """Return whether another run is to begin after one that was ended; if so, be ready for it."""
        with self._lock:
            if self.ending is not Ending.RESTART:
                return False
            self.ending = None
            self.stopping.clear()
            return True

    def reads(self, ingress: str) -> bool:
        """Return whether the next micro-batch may read records of an ingress."""
        paused = self.pauses.paused
        return not (self.is_draining or paused.application or ingress in paused.ingresses)

    def delivers(self) -> bool:
        """Return whether the next micro-batch may deliver messages between functions, and timers."""
        return not self.pauses.paused.application

    def publishes(self, egress: str) -> bool:
        """Return whether records may be published to an egress."""
        return egress not in self.pauses.paused.egresses
