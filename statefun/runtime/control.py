# SPDX-License-Identifier: Apache-2.0
"""Controls a running application: people pause parts of it, and order it to drain, to restart or to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.orders import Order, Orders
from statefun.runtime.checkpoint.pauses import Pauses
from statefun.sdk.errors import CheckpointError

logger = logging.getLogger("statefun")

_LOOK_SECONDS = 1
"""The time, in seconds, between two looks for orders in the checkpoint."""


class RunEnding(Enum):
    """Why a run ends early."""

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
        self.is_watched = False
        """Whether the present run looks at :attr:`stopping` again and again, so that a signal need not interrupt it."""
        self.ending: RunEnding | None = None
        """Why the present run is to end; None if it is not."""
        self.is_draining = False
        """Whether the run reads no more records, and ends when everything is delivered and published."""
        self.restarts = 0
        """How often another run has begun, since a restart was ordered or a worker was lost."""
        self._pauses: Pauses | None = None
        self._is_signalled = False
        self._lock = threading.Lock()

    @property
    def pauses(self) -> Pauses:
        """The paused parts of the application, which must be running."""
        if self._pauses is None:
            raise RuntimeError("the application does not run")
        return self._pauses

    @contextmanager
    def obeying(self, checkpoint: Folder) -> Iterator[None]:
        """Obey the orders that people write into a checkpoint during the block.

        Raises:
            CheckpointError: if a file with orders is damaged.
        """
        self._pauses, orders = Pauses(checkpoint), Orders(checkpoint)
        has_ended = threading.Event()
        thread = threading.Thread(
            target=self._obey,
            args=(orders, has_ended),
            name="statefun-orders",
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()
            with suppress(CheckpointError, OSError):  # the next start ignores it anyway
                orders.close()

    def _obey(self, orders: Orders, has_ended: threading.Event) -> None:
        problem = ""
        while not has_ended.wait(_LOOK_SECONDS):
            try:
                self.look()
                order = orders.next()
                problem = ""
            except Exception as error:  # noqa: BLE001 - the application goes on, and so do later looks
                if str(error) != problem:
                    problem = str(error)
                    logger.warning("orders to the application cannot be obeyed: %s", problem)
                continue
            if order is not None:
                logger.info("ordered to %s", order.value)
                self.obey(order)

    def look(self) -> None:
        """Read the paused parts again, and log them if they have changed; a pause begins with the next micro-batch.

        Raises:
            CheckpointError: if the file is damaged.
        """
        if self.pauses.look():
            parts = ", ".join(self.pauses.paused.parts())
            logger.warning("paused now: %s", parts or "nothing")

    def obey(self, order: Order) -> None:
        """Obey an order: begin to drain, or end the present run to stop or restart.

        A restart takes back an earlier order to drain. A later one, while the present run ends, is for the next run.
        """
        if order is Order.DRAIN:
            self.is_draining = True
        elif order is Order.RESTART:
            self.is_draining = False
            self.end(RunEnding.RESTART)
        else:
            self.end(RunEnding.STOP)

    def end(self, ending: RunEnding) -> None:
        """End the present run soon; a signal overrides an order to stop, which overrides a restart."""
        if ending is RunEnding.SIGNAL:  # its handler may interrupt the thread that has the lock
            self._is_signalled = True
            self.ending = ending
        else:
            with self._lock:
                if self.ending is None or ending.value < self.ending.value:
                    self.ending = ending
        self.stopping.set()

    def is_restarted(self) -> bool:
        """Return whether another run is to begin after the ended one; if so, forget why that one has ended."""
        with self._lock:
            if self.ending is not RunEnding.RESTART:
                return False
            self.ending = None
            self.stopping.clear()
            if self._is_signalled:  # since the run has ended
                self.end(RunEnding.SIGNAL)
                return False
            self.restarts += 1
            return True

    def reads(self, ingress: str) -> bool:
        """Return whether the next micro-batch may read records of an ingress."""
        paused = self.pauses.paused
        return not (self.is_draining or paused.application or ingress in paused.ingresses)

    def delivers(self) -> bool:
        """Return whether the next micro-batch may deliver messages between functions, and timers."""
        return not self.pauses.paused.application

    def may_end_draining(self) -> bool:
        """Return whether the run was ordered to drain, and no pause keeps it from publishing and ending."""
        paused = self.pauses.paused
        return self.is_draining and not (paused.application or paused.egresses)
