# SPDX-License-Identifier: Apache-2.0
"""Publishes each egress in a thread, so that a slow or unreachable cluster does not delay other egresses."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta

from statefun.runtime.checkpoint.outbox import Staged
from statefun.runtime.egress.lane import UndeliveredError
from statefun.runtime.egress.lane_set import LaneFactory, Lanes, Published, UntilStopped
from statefun.sdk.errors import EngineError, StatefunError

logger = logging.getLogger("statefun.egress")


class EgressThread:
    """Publishes batches to one egress, in the order in which they were added.

    Args:
        factory: makes the egress's lanes.
        on_published: called with each batch whose records are published, and with the last one if it is not whole.
        on_error: called with the error if publishing fails; the thread has ended then.
        may_publish: returns whether the next batches may be published; if not, they wait until :meth:`look`.
    """

    def __init__(
        self,
        factory: LaneFactory,
        on_published: Callable[[Published], None],
        on_error: Callable[[StatefunError], None],
        may_publish: Callable[[], bool] = lambda: True,
    ) -> None:
        self.factory = factory
        self._on_published = on_published
        self._on_error = on_error
        self._may_publish = may_publish
        self._queue: deque[Staged] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self.turn = UntilStopped(self._stop)
        """Ends the publishing of the egress's lanes when the thread is to stop."""
        self._driver_lanes = factory.driver_lanes(self.turn)
        self._lanes: Lanes = self._driver_lanes
        self._successor: Lanes | None = None
        """The lanes that replace the present ones once :attr:`_remaining` batches are published."""
        self._remaining = 0
        self._thread = threading.Thread(
            target=self._run, name=f"statefun-egress-{factory.egress.id}", daemon=True
        )

    def connect(self) -> None:
        """Connect to the cluster before the first batch, if the cluster stores no markers.

        So wrong properties are found early, and the first batch need not wait for the connection.

        Raises:
            ConfigurationError: if the egress's properties are wrong.
        """
        self._driver_lanes.connect()

    def open(self, query_id: str, lanes: int, known_runs: Collection[str]) -> None:
        """Open all lanes of an exactly-once egress to which earlier runs may have published.

        Raises:
            StatefunError: if this run cannot or must not publish to the egress.
        """
        self._driver_lanes.open(query_id, lanes, known_runs)

    def claim(self) -> set[str]:
        """Claim the opened lanes, so that no other run publishes; return the ids of runs that have published.

        Raises:
            StatefunError: if another run claims the lanes, too.
        """
        return self._driver_lanes.claim()

    def start(self) -> None:
        """Start the thread, which publishes the batches that are added."""
        self._thread.start()

    def use(self, lanes: Lanes) -> None:
        """Use ``lanes`` to publish the batches that are added from now on.

        Batches that wait already, as those of a paused egress do, are published through the present lanes first.
        """
        with self._changed:
            self._successor, self._remaining = lanes, len(self._queue)
            self._succeed()

    def add(self, staged: Staged) -> None:
        """Add a committed batch, which the thread publishes after the batches that were added before."""
        with self._changed:
            self._queue.append(staged)
            self._changed.notify_all()

    def look(self) -> None:
        """Publish waiting batches if the egress is no longer paused; call this after each change of pauses."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop publishing and end the thread; records that are not published stay in the outbox."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._lanes.cancel()
        if self._thread.is_alive():
            self._thread.join()
        self._lanes.close()

    def _run(self) -> None:
        try:
            wait, is_last = None, False
            while not is_last:
                batches = self._next(wait)
                for published in self._lanes.publish(batches) if batches else ():
                    if published.is_whole:
                        with self._changed:
                            self._queue.popleft()
                            self._remaining -= 1
                    self._on_published(published)
                with self._changed:
                    self._succeed()
                is_last = self._stop.is_set()
                wait = self._lanes.tend(is_last=is_last)
        except UndeliveredError:
            logger.info(
                "egress %s: stopped before all batches were published; the next start publishes the rest",
                self.factory.egress.id,
            )
        except StatefunError as error:
            self._on_error(error)
        except Exception as error:  # noqa: BLE001 - a silent end would hang the driver
            where = f"batch {self._queue[0].manifest.batch}" if self._queue else "the last batch"
            failure = EngineError(
                f"{where} cannot be published to egress {self.factory.egress.id}: "
                f"{type(error).__name__}: {error}; its records stay in the outbox, and the next start publishes them"
            )
            failure.__cause__ = error  # with its traceback, which debug shows
            self._on_error(failure)

    def _next(self, limit: timedelta | None) -> list[Staged]:
        """Wait for batches, up to ``limit`` if given; return an empty list after ``limit`` or :meth:`stop`."""
        seconds = None if limit is None else min(limit.total_seconds(), threading.TIMEOUT_MAX)
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready() or self._stop.is_set(), seconds)
            if self._stop.is_set() or not self._is_ready():
                return []
            batches = list(self._queue)
            return batches if self._successor is None else batches[: self._remaining]

    def _is_ready(self) -> bool:
        return bool(self._queue) and self._may_publish()

    def _succeed(self) -> None:
        """Replace the lanes by their successor, if there is one, once they have published their batches."""
        if self._successor is not None and self._remaining <= 0:
            self._lanes.close()
            self._lanes, self._successor = self._successor, None
