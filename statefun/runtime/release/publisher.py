# SPDX-License-Identifier: Apache-2.0
"""Publishes the staged records of a batch after Spark has committed the batch.

A separate thread watches the commit log, since Spark does not report commits while a
stream is idle. It passes each committed batch to the egresses for which the batch has records. Each
egress has its own thread and pace. Once all egresses have published a batch and all earlier ones, the
consumer groups' offsets are committed, and batches that are published and delivered are deleted.
After a crash in between, the next run repeats these steps; nothing is lost.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import cast

import attrs
from pyspark import SparkContext

from statefun.runtime.checkpoint.commit_log import CommitLog, overtaken
from statefun.runtime.checkpoint.former_queries import forget_former_queries, former_queries
from statefun.runtime.checkpoint.known_runs import Runs
from statefun.runtime.checkpoint.outbox import Leftovers, Outbox, Staged
from statefun.runtime.checkpoint.pauses import Pausable, Pauses
from statefun.runtime.egress.kafka_lanes import KafkaLaneFactory
from statefun.runtime.egress.lane_set import LaneFactory, Published
from statefun.runtime.egress.tasks import TaskLanes
from statefun.runtime.egress.thread import EgressThread
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.release.retention import BACKLOG, Retention
from statefun.runtime.release.undeclared_egresses import undeclared_egress
from statefun.runtime.settings import Settings
from statefun.sdk.errors import CheckpointError, EngineError, StatefunError

logger = logging.getLogger("statefun.egress")

_POLL_LOCAL = timedelta(milliseconds=5)
_POLL_OWN = timedelta(milliseconds=20)
"""The time between two questions to the own JVM; each costs more than a look at a local file, and no request to a store."""
_POLL_REMOTE = timedelta(milliseconds=100)
_CHECK_INTERVAL = timedelta(milliseconds=500)
"""The time between two checks of :meth:`Publisher.drain` whether the application is to stop."""


@attrs.define
class _Released:
    """A committed batch that was passed to its egresses, and the egresses that have not published it yet."""

    batch: int
    staged: Staged | None
    egresses: set[str]


class Publisher:
    """Publishes committed batches; each egress has a thread of the driver.

    Args:
        run: the id of the application's run.
        factories: make the lanes of the egresses, for this run.
        settings: the application's settings.
        group_offsets: commits the offsets of published batches to consumer groups.
        retention: deletes batches that are published and delivered.
        pauses: has the egresses that are paused, whose batches wait; None if no egress can be paused.
        published: gets the numbers of published records; None to count those of this run alone.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of publishing
        self,
        run: str,
        factories: Iterable[LaneFactory],
        settings: Settings,
        group_offsets: GroupOffsets,
        retention: Retention,
        pauses: Pauses | None = None,
        published: Counter[str] | None = None,
    ) -> None:
        checkpoint = settings.checkpoint
        self.run_id = run
        """The id of the application's run."""
        self._factories = {str(factory.egress.id): factory for factory in factories}
        self._settings = settings
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self.group_offsets = group_offsets
        """Commits the offsets of published batches to consumer groups."""
        self._retention = retention
        self._pauses = pauses
        others = _POLL_REMOTE if checkpoint.kept is None else _POLL_OWN
        self._poll = (_POLL_LOCAL if checkpoint.is_local else others).total_seconds()
        self._threads: dict[str, EgressThread] = {}
        self._uncommitted: deque[int] = deque()
        self._with_effects: set[int] = set()
        """The batches among them that have a manifest in the outbox."""
        self._committed = -1
        """The number of the newest batch that is known to be committed, even if Spark has deleted its file."""
        self._released: deque[_Released] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statefun-publisher", daemon=True)
        self.error: StatefunError | None = None
        """The error that has ended publishing; None if there is none."""
        self.records = 0
        """The number of records that were published since the run began; it leaves out those of earlier runs."""
        self._published_records = Counter() if published is None else published
        """The number of published records, by the id of their egress; earlier runs may have counted theirs, too."""
        self.refused = 0
        """The number of records that clusters have refused for good without ending the application."""

    @property
    def egresses(self) -> Collection[str]:
        """The ids of the egresses."""
        return self._factories.keys()

    def waiting(self) -> Mapping[str, tuple[int, int]]:
        """Return how many committed micro-batches, and how many of their records, wait for each egress."""
        with self._changed:
            released = [(each.staged, tuple(each.egresses)) for each in self._released]
        found = dict.fromkeys(self._factories, (0, 0))
        for staged, egresses in released:
            for egress in egresses if staged is not None else ():
                batches, records = found[egress]
                found[egress] = batches + 1, records + cast("Staged", staged).total(egress)
        return found

    def start(self, leftovers: Leftovers) -> None:
        """Start publishing in the background, beginning with the batches that earlier runs have left.

        Raises:
            StatefunError: if the lanes of an exactly-once egress cannot be opened or claimed, or the
                properties of an egress to which the driver publishes are wrong.
        """
        for id_, factory in self._factories.items():
            self._threads[id_] = EgressThread(
                factory, partial(self._published, id_), self._fail, partial(self._may_publish, id_)
            )
        self._take_over()
        are_tasks = self._settings.egress_lanes > 1
        for thread in self._threads.values():
            if not (are_tasks and isinstance(thread.factory, KafkaLaneFactory)):
                thread.connect()
            thread.start()
        self._retention.start(leftovers)
        self._uncommitted.extend(leftovers.unpublished)
        self._with_effects.update(leftovers.unpublished)
        self._committed = max(leftovers.unpublished, default=-1)
        self._thread.start()
        if self._pauses is not None:
            self._pauses.listen(self._look)

    def run_as_tasks(self, context: SparkContext) -> None:
        """Let Spark tasks publish the records of later batches to Kafka."""
        for thread in self._threads.values():
            if isinstance(thread.factory, KafkaLaneFactory):
                thread.use(TaskLanes(thread.factory, context, thread.turn))

    def add(self, batch: int, *, has_effects: bool) -> None:
        """Register a staged batch before its commit; wait while too many batches are unpublished.

        Args:
            batch: the number of the batch.
            has_effects: whether the batch has a manifest in the outbox.

        Raises:
            StatefunError: if publishing has failed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._backlog() < BACKLOG or self._stop.is_set() or self.error
            )
            if self.error is not None:
                raise self.error
            self._uncommitted.append(batch)
            if has_effects:
                self._with_effects.add(batch)
            self._changed.notify_all()

    def drain(self, newest_commit: int, stopping: threading.Event) -> None:
        """Wait until all batches up to ``newest_commit`` are published, except to egresses that are paused.

        Raises:
            StatefunError: if publishing has failed.
            KeyboardInterrupt: if the application is to stop before that.
        """
        is_done = False
        while not is_done:
            if stopping.is_set():
                raise KeyboardInterrupt
            with self._changed:
                is_done = self._changed.wait_for(
                    lambda: self.error is not None or self._is_published(newest_commit),
                    timeout=_CHECK_INTERVAL.total_seconds(),
                )
        if self.error is not None:
            raise self.error

    def _is_published(self, newest: int) -> bool:
        """Return whether all batches up to ``newest`` are published, except to egresses that are paused."""
        if self._uncommitted and self._uncommitted[0] <= newest:
            return False
        is_blocked = False
        for released in self._released:
            if released.batch > newest:
                break
            if any(map(self._may_publish, released.egresses)):
                return False
            # A batch that is published is finished soon, unless one before it waits for a paused egress.
            if not (released.egresses or is_blocked):
                return False
            is_blocked = True
        return True

    def _may_publish(self, egress: str) -> bool:
        return self._pauses is None or not self._pauses.paused.has(Pausable.EGRESS, egress)

    def _look(self) -> None:
        """Let egresses that are no longer paused publish their waiting batches."""
        for thread in tuple(self._threads.values()):
            thread.look()

    def stop(self) -> None:
        """Stop publishing; records that are not published stay in the outbox."""
        if self._pauses is not None:
            self._pauses.forget(self._look)
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for thread in self._threads.values():
            thread.stop()

    def _take_over(self) -> None:
        """Claim the exactly-once lanes, so that other runs with this checkpoint or a copy cannot publish."""
        exactly_once = [each for each in self._threads.values() if each.factory.needs_progress]
        egresses = [thread.factory.egress for thread in exactly_once]
        places = [f"{egress.id} {egress.address}" for egress in egresses]
        runs = Runs(self._settings.checkpoint, self.run_id, places)
        query_id = self._commit_log.query_id()
        if not query_id:  # no earlier run has published from the checkpoint
            runs.add()
            return
        self._end_former(exactly_once)
        for thread in exactly_once:
            thread.open(query_id, self._settings.egress_lanes, runs.earlier)
        publishers = set().union(*(thread.claim() for thread in exactly_once))
        runs.add()
        runs.forget_all_but(publishers)

    def _end_former(self, exactly_once: Iterable[EgressThread]) -> None:
        """If the checkpoint is restored from a snapshot, end the lanes of the lost applications.

        A crash in between repeats all of this, which changes nothing.
        """
        checkpoint = self._settings.checkpoint
        if former := former_queries(checkpoint):
            for thread in exactly_once:
                for query_id in former:
                    thread.factory.end_former(query_id, thread.turn)
            forget_former_queries(checkpoint)

    def _backlog(self) -> int:
        return len(self._uncommitted) + len(self._released)

    def _oldest(self) -> float:
        """Return the number of the oldest batch that is not published; infinity if all batches are published."""
        if self._released:
            return self._released[0].batch
        return self._uncommitted[0] if self._uncommitted else float("inf")

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self.error is None:
                self._step()
        except StatefunError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a silent end would hang the driver
            failed = EngineError(
                f"batch {self._oldest()} cannot be published: {type(error).__name__}: {error}; "
                "its records stay in the outbox, and the next start publishes them"
            )
            failed.__cause__ = error  # with its traceback, which debug shows
            self._fail(failed)

    def _step(self) -> None:
        """Finish the oldest batch if it is published, or release the next batch if it is committed, or wait."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._uncommitted
                    or (self._released and not self._released[0].egresses)
                    or self._stop.is_set()
                    or self.error
                )
            )
            finished = self._released and not self._released[0].egresses
            next_ = self._uncommitted[0] if self._uncommitted else None
        if finished:
            self._finish(self._released[0])
        elif next_ is not None and self._is_committed(next_):
            self._release(next_)
        elif next_ is not None:
            self._stop.wait(self._poll)

    def _is_committed(self, batch: int) -> bool:
        """Return whether a batch is committed.

        Raises:
            CheckpointError: if another run has committed it.
        """
        if batch <= self._committed:
            return True
        author = self._commit_log.author(batch)
        if author and author != self.run_id:
            raise overtaken(batch)
        return author is not None

    def _release(self, batch: int) -> None:
        """Flush a batch's commit to the disk, so that it is durable; then pass the batch to its egresses.

        Raises:
            CheckpointError: if another driver has taken over the checkpoint: it publishes the batch. Or if the effects
                of the batch are missing.
        """
        self._settings.checkpoint.check_owner()
        self._commit_log.sync(batch)
        staged = self._outbox.staged(batch)
        if staged is None and batch in self._with_effects:
            raise CheckpointError(
                f"the effects of batch {batch} are no longer in {self._outbox.batch_folder(batch).shown}, but have not "
                "been published yet; restore the checkpoint from a copy"
            )
        egresses: set[str] = set()
        if staged is not None:
            egresses.update(egress for egress in staged.egresses if staged.total(egress))
            for egress, numbers in staged.skips.items():
                logger.warning(
                    "egress %s: %d records of batch %d are not published, since they were skipped with "
                    "`statefun outbox`",
                    egress,
                    len(numbers),
                    batch,
                )
        for egress in egresses - self._threads.keys():
            raise undeclared_egress(egress)
        with self._changed:
            self._released.append(_Released(batch, staged, egresses.copy()))
            self._uncommitted.popleft()
            self._with_effects.discard(batch)
        for egress in egresses:
            self._threads[egress].add(cast("Staged", staged))

    def _finish(self, released: _Released) -> None:
        """Finish a published batch: commit its offsets to consumer groups, and delete it if it is delivered."""
        if released.staged is not None:
            self._retention.published(released.staged.manifest)
        self.group_offsets.commit(released.batch)
        self._retention.committed(released.batch)
        with self._changed:
            self._released.popleft()
            self._changed.notify_all()

    def _published(self, egress: str, published: Published) -> None:
        """Record that an egress has published a batch, and count its records; count those of half a batch, too."""
        staged = published.staged
        with self._changed:
            self.refused += published.refused
            self.records += published.written
            self._published_records[egress] += published.written
            if published.is_whole:
                released = next(
                    each for each in self._released if each.batch == staged.manifest.batch
                )
                released.egresses.discard(egress)
                self._changed.notify_all()

    def _fail(self, error: StatefunError) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()
