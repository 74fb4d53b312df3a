# SPDX-License-Identifier: Apache-2.0
"""The Spark source of a file ingress: the driver finds the lines of files, and tasks read them.

A file may grow by whole lines, and new files may appear. Before Spark plans a micro-batch, the source
stores in the checkpoint which parts of files the micro-batch reads. So a micro-batch that is repeated after
a crash reads the same records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from pyspark.sql import DataFrame

from statefun.components.running import Folder, Offset, Reading
from statefun.files.examining import NOTHING_NEW, Examination, examine
from statefun.files.file_log import FileLog, FileState, LogEntry
from statefun.files.file_plan import FilePlan, Loss, PlanFacts
from statefun.files.file_settings import AfterRead, IngressFiles, OnChange
from statefun.files.folder_watch import ListedFile, WaitingClock, Watch
from statefun.files.look_pace import LookPace
from statefun.files.parsing import change_error, encode_task, read_task
from statefun.files.places import checked_place
from statefun.files.taking_away import TakingAway
from statefun.sdk.errors import ConnectorError

logger = logging.getLogger("statefun.ingress")

_QUIET = timedelta(seconds=10)
"""After this time without a change, a file counts as complete: its writer has finished."""
_QUIET_BOUNDED = timedelta(seconds=1)
"""In a bounded run, a file counts as complete after this time without a change, as the run waits for it."""


def read_files(reading: Reading) -> DataFrame:
    """Return a streaming DataFrame with the records of a file ingress.

    Raises:
        ConfigurationError: if pyarrow does not know the file system of a path.
        ConnectorError: if the folder or file of a path does not exist.
    """
    settings: IngressFiles = reading.ingress.settings
    source = FileSource(
        settings, reading.folder, reading.records_per_batch, committed=reading.committed
    )
    return reading.planned(source, read_task)


class FileSource:
    """Decides which parts of the files of an ingress each micro-batch reads.

    Args:
        settings: the files of the ingress, and what to do when a file changes.
        folder: a folder of the checkpoint, for the file log.
        records_per_batch: how many records a micro-batch has at most.
        committed: returns the newest offset whose micro-batches are committed and never run again.
        clock: measures for how long files have stayed unchanged.

    Raises:
        ConfigurationError: if pyarrow does not know the file system of a path.
        ConnectorError: if the folder or file of a path does not exist.
    """

    def __init__(
        self,
        settings: IngressFiles,
        folder: Folder,
        records_per_batch: int,
        *,
        committed: Callable[[], Offset | None],
        clock: WaitingClock | None = None,
    ) -> None:
        self._settings = settings
        # Only now: a path stays the path of a folder while the folder is missing.
        self._places = {
            route: checked_place(settings.owner, files.path)
            for route, files in settings.files.items()
        }
        self._log = FileLog(folder)
        self._records_per_batch = records_per_batch
        self._clock = clock or WaitingClock()
        self._watch = Watch(settings.owner, self._places, self._clock)
        self._taking_away = TakingAway(settings.owner, settings.after_read, self._log, committed)
        is_remote = not all(place.folder.is_local for place in self._places.values())
        self._pace = LookPace(is_remote=is_remote)
        self._next_listing = self._clock.now()
        self._is_bounded = False
        self._bounds: dict[str, int] | None = None
        """In a bounded run, the sizes of files when their folders were first listed, up to which they are read; else None."""
        self._unbound_routes = set(self._places)
        """The routes whose files are not in the bounds: all if the run is not bounded, else those whose folders are away."""
        self._warnings: dict[str, str] = {}
        """The warnings that were logged and still hold, by the route or file that they are about."""
        self._stopped = threading.Event()

    def initial_offset(self) -> Offset:
        """Return the offset at which reading begins, before the first entry of the file log."""
        return {"log": 0, "records": 0}

    def latest_offset(self, start: Offset) -> Offset:
        """Return the offset at which the next micro-batch ends; ``start`` if there is nothing to read."""
        number = start["log"]
        states = self._log.states(number)
        if self._log.has(number + 1):  # planned by a run that has crashed
            entry = self._log.read(number + 1)
            self._log.advance(number + 1, entry)
        else:
            entry = self._next_entry(number, states)
            if entry.is_empty:
                return start
            self._log.write(number + 1, entry)
        return {"log": number + 1, "records": entry.records}

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Return tasks that read the parts of files between two offsets."""
        owner, files = self._settings.owner, self._settings.files
        may_change = self._settings.on_change is OnChange.GO_ON
        tasks: list[bytes] = []
        for number in range(start["log"] + 1, end["log"] + 1):
            for part in self._log.read(number).ranges:
                if part.route not in files:
                    raise ConnectorError(
                        f"{owner}: an unfinished micro-batch of the checkpoint reads {part.route}, which the ingress no longer "
                        "lists; list this path again until one run has finished the micro-batch"
                    )
                location = self._places[part.route].folder.location
                settings = files[part.route]
                tasks.append(encode_task(part, location, settings, owner, may_change=may_change))
        return tasks

    def bound(self) -> None:
        """Make the run bounded: read only what the files contain when their folders are listed next."""
        self._is_bounded = True

    def stop(self) -> None:
        """End the wait of a bounded run for files whose writers may not have finished."""
        self._stopped.set()

    @property
    def _quiet(self) -> float:
        return (_QUIET_BOUNDED if self._is_bounded else _QUIET).total_seconds()

    def _is_still(self, file: ListedFile) -> bool:
        """Return whether a file counts as complete, because it has stayed unchanged for long enough.

        The last listing of the folders decides: later changes of the file are not known yet.
        """
        return self._watch.listed_at - file.since >= self._quiet

    def _next_entry(self, number: int, states: Mapping[str, FileState]) -> LogEntry:
        """Return the entry of the file log for the next micro-batch; it is empty if there is nothing to read."""
        if self._unbound_routes and self._clock.now() >= self._next_listing:
            self._list_folders(states)
        entry = self._planned_entry(number, states)
        unready_files = [*self._watch.unfinished_files.values(), *self._taking_away.files]
        if not self._is_bounded or not entry.is_empty or not unready_files:
            return entry
        ready = max(file.since for file in unready_files) + self._quiet
        if not self._clock.wait(self._stopped, max(0.0, ready - self._clock.now())):
            self._list_folders(states)
            entry = self._planned_entry(number, states)
        return entry

    def _list_folders(self, states: Mapping[str, FileState]) -> None:
        """List the folders, and decide when to list them again.

        Raises:
            ConnectorError: if a folder cannot be listed.
        """
        began = self._clock.now()
        takes_away = self._settings.after_read is not AfterRead.KEEP
        try:
            has_changed = self._watch.list_folders(states, may_be_empty=takes_away)
        except OSError as error:
            raise ConnectorError(
                f"{self._settings.owner}: its files cannot be listed: {error}"
            ) from error
        if self._is_bounded:
            listed_routes = self._unbound_routes - self._watch.troubles.keys()
            self._bounds = (self._bounds or {}) | self._watch.sizes(listed_routes)
            self._unbound_routes -= listed_routes
        now = self._clock.now()
        pause = self._pace.pause(timedelta(seconds=now - began), has_changed=has_changed)
        self._next_listing = now + pause.total_seconds()
        action = "waiting until the folder has files"
        if self._is_bounded:
            action = "this run reads its files only if they are there before the run ends"
        for route in self._places:
            trouble = self._watch.troubles.get(route)
            self._log_once(f"route {route}", None if trouble is None else (trouble, action))

    def _planned_entry(self, number: int, states: Mapping[str, FileState]) -> LogEntry:
        """Plan the next micro-batch: add files that may have content to read, and mark missing files.

        Return the entry of the file log for this micro-batch.
        """
        facts = PlanFacts(
            number,
            self._log.total,
            self._records_per_batch,
            states,
            self._log.stored_removals(number),
            self._bounds,
            takes_away=self._settings.after_read is not AfterRead.KEEP,
            now=time.time_ns(),
        )
        plan = FilePlan(facts)
        for path, is_unread in self._watch.pop_missing():
            self._warnings.pop(path, None)
            self._taking_away.discard(path)
            loss = plan.mark_missing(path, is_unread=is_unread)
            if loss is not Loss.NOTHING and self._watch.means(path):
                self._report_loss(path, loss)
        self._watch.requeue_still_files(self._is_still)
        for file in self._watch.readable():
            if plan.room <= 0:
                break
            self._plan_file(plan, file)
        plan.forget(self._taking_away.take(number, self._is_still))
        return plan.entry()

    def _plan_file(self, plan: FilePlan, file: ListedFile) -> None:
        """Add the parts of a pending file to a plan, and report problems of the file.

        Raises:
            ConnectorError: if the file cannot be read, or has changed and ``onChange`` is ``fail``.
        """
        if plan.is_unchanged(file):
            planned_file = plan.add(file, NOTHING_NEW)
        else:
            examination = self._examine(plan, file)
            if examination is None:
                return
            planned_file = plan.add(file, examination)
            if planned_file.change is not None:
                self._report_change(file.path, planned_file.change)
            self._log_once(file.path, planned_file.warning)
        if planned_file.is_finished:
            self._watch.mark_planned(file, has_more=planned_file.has_more)
            if planned_file.state is not None:
                self._taking_away.add(file, planned_file.state, planned_file.number)

    def _examine(self, plan: FilePlan, file: ListedFile) -> Examination | None:
        """Return which parts of a file to read; None if the file is missing now.

        Raises:
            ConnectorError: if the file cannot be read.
        """
        files, unfinished_line = self._settings.files[file.route], self._settings.unfinished_line
        try:
            return examine(
                file,
                plan.state_of(file),
                files,
                unfinished_line,
                plan.end_of(file),
                plan.room,
                is_still=self._is_still(file),
            )
        except (
            FileNotFoundError
        ):  # the next listing shows whether the file or its folder is missing
            return None
        except OSError as error:
            raise ConnectorError(
                f"{self._settings.owner}: file {file.path} cannot be read: {error}"
            ) from error

    def _report_loss(self, path: str, loss: Loss) -> None:
        """Log a warning or raise an error about records that are lost because a file was deleted.

        Raises:
            ConnectorError: if a part of the file was read, and ``onChange`` is ``fail``.
        """
        if loss is Loss.UNKNOWN_FILE:
            logger.warning(
                "%s: file %s was deleted before it was read, so its records are lost",
                self._settings.owner,
                path,
            )
        elif loss is Loss.UNREAD_REST:
            self._report_change(path, "was deleted")

    def _report_change(self, path: str, what: str) -> None:
        """Raise an error or log a warning about a changed file, as ``onChange`` demands.

        Raises:
            ConnectorError: if ``onChange`` is ``fail``.
        """
        error = change_error(self._settings.owner, path, what)
        if self._settings.on_change is OnChange.FAIL:
            raise error
        logger.warning(
            "%s; the application goes on; a file that is at this path now is read from its beginning",
            error.message.partition(";")[0],
        )

    def _log_once(self, subject: str, warning: tuple[str, str] | None) -> None:
        """Log a warning about a route or file, unless it was logged before and has been true since.

        Args:
            subject: the route or file.
            warning: what is wrong, and what the application does; None if nothing is wrong now.
        """
        if warning is None:
            self._warnings.pop(subject, None)
        elif self._warnings.get(subject) != warning[0]:
            self._warnings[subject] = warning[0]
            logger.warning("%s: %s; %s", self._settings.owner, *warning)
