# SPDX-License-Identifier: Apache-2.0
"""Files of folders as records for functions: the driver finds their lines, and tasks read them.

A file may grow by whole lines, and new files may come. The source writes what a micro-batch reads into
the checkpoint before Spark plans it, so that the micro-batch reads the same records after a crash.
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
from statefun.files.file_log import Entry, FileLog, FileState
from statefun.files.file_plan import FilePlan, Loss, PlanFacts
from statefun.files.file_settings import AfterRead, IngressFiles, OnChange
from statefun.files.folder_watch import Clock, ListedFile, Watch
from statefun.files.look_pace import LookPace
from statefun.files.parsing import change_error, encode_task, read_task
from statefun.files.places import checked_place
from statefun.files.taking_away import TakingAway
from statefun.sdk.errors import ConnectorError

logger = logging.getLogger("statefun.ingress")

_QUIET = timedelta(seconds=10)
"""A file that has not changed for this time is complete: its writer has finished."""
_QUIET_BOUNDED = timedelta(seconds=1)
"""The same in a bounded run."""


def read_files(reading: Reading) -> DataFrame:
    """Return the records of an ingress.

    Raises:
        ConnectorError: if the folder or file of a path does not exist.
    """
    settings: IngressFiles = reading.ingress.settings
    source = FileSource(
        settings, reading.folder, reading.records_per_batch, committed=reading.committed
    )
    return reading.planned(source, read_task)


class FileSource:
    """Decides what each micro-batch reads of some files.

    Args:
        settings: the files, and what to do when one of them changes.
        folder: a folder of the checkpoint, for the log.
        records_per_batch: how many records a micro-batch has at most.
        committed: returns the offset up to which micro-batches are committed for good.
        clock: measures how long files have not changed.

    Raises:
        ConfigurationError: if pyarrow knows no file system of a path.
        ConnectorError: if the folder or file of a path does not exist.
    """

    def __init__(
        self,
        settings: IngressFiles,
        folder: Folder,
        records_per_batch: int,
        *,
        committed: Callable[[], Offset | None],
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        # Only now: a path stays the path of a folder while the folder is missing.
        self._places = {
            route: checked_place(settings.owner, files.path)
            for route, files in settings.files.items()
        }
        self._log = FileLog(folder)
        self._records_per_batch = records_per_batch
        self._clock = clock or Clock()
        self._watch = Watch(settings.owner, self._places, self._clock)
        self._taking_away = TakingAway(settings.owner, settings.after_read, self._log, committed)
        is_remote = not all(place.folder.is_local for place in self._places.values())
        self._pace = LookPace(is_remote=is_remote)
        self._next_look = self._clock.now()
        self._is_bounded = False
        self._bounds: dict[str, int] | None = None
        """The sizes of files at the first look of a bounded run: it reads no further."""
        self._warnings: dict[str, str] = {}
        """The last warning in the log about each route and file, while the warning holds."""
        self._stopped = threading.Event()

    def initial_offset(self) -> Offset:
        """Return the offset before the first entry of the log."""
        return {"log": 0, "records": 0}

    def latest_offset(self, start: Offset) -> Offset:
        """Return the offset of the next entry of the log, or ``start`` if there is nothing to read."""
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
        """Return tasks for the parts of files between two entries of the log."""
        owner, files = self._settings.owner, self._settings.files
        may_change = self._settings.on_change is OnChange.GO_ON
        tasks: list[bytes] = []
        for number in range(start["log"] + 1, end["log"] + 1):
            for part in self._log.read(number).ranges:
                if part.route not in files:
                    raise ConnectorError(
                        f"{owner}: the checkpoint has planned to read {part.route}, which the "
                        "ingress lists no more; list it for one more start"
                    )
                location = self._places[part.route].folder.location
                settings = files[part.route]
                tasks.append(encode_task(part, location, settings, owner, may_change=may_change))
        return tasks

    def bound(self) -> None:
        """Read only what the files hold now."""
        self._is_bounded = True

    def stop(self) -> None:
        """End the wait for files to be complete."""
        self._stopped.set()

    @property
    def _quiet(self) -> float:
        return (_QUIET_BOUNDED if self._is_bounded else _QUIET).total_seconds()

    def _is_still(self, file: ListedFile) -> bool:
        """Return whether a file had not changed for long enough at the last look."""
        return self._watch.looked - file.since >= self._quiet

    def _next_entry(self, number: int, states: Mapping[str, FileState]) -> Entry:
        """Return what the next micro-batch reads; the entry is empty if there is nothing to read."""
        if self._bounds is None and self._clock.now() >= self._next_look:
            self._look(states)
        entry = self._planned_entry(number, states)
        unready_files = [*self._watch.unfinished_files.values(), *self._taking_away.files]
        if not self._is_bounded or not entry.is_empty or not unready_files:
            return entry
        ready = max(file.since for file in unready_files) + self._quiet
        if not self._clock.wait(self._stopped, max(0.0, ready - self._clock.now())):
            self._look(states)
            entry = self._planned_entry(number, states)
        return entry

    def _look(self, states: Mapping[str, FileState]) -> None:
        """Look at the folders, and decide when to look again.

        Raises:
            ConnectorError: if a folder cannot be listed.
        """
        began = self._clock.now()
        takes_away = self._settings.after_read is not AfterRead.KEEP
        try:
            has_changed = self._watch.look(states, may_be_empty=takes_away)
        except OSError as error:
            raise ConnectorError(
                f"{self._settings.owner}: its files cannot be listed: {error}"
            ) from error
        if self._is_bounded and self._bounds is None:
            self._bounds = self._watch.sizes()
        now = self._clock.now()
        pause = self._pace.pause(timedelta(seconds=now - began), has_changed=has_changed)
        self._next_look = now + pause.total_seconds()
        for route in self._places:
            trouble = self._watch.troubles.get(route)
            self._log_once(
                f"route {route}",
                None if trouble is None else (trouble, "waiting for its files"),
            )

    def _planned_entry(self, number: int, states: Mapping[str, FileState]) -> Entry:
        """Return the plan of a micro-batch from pending files and files that are no longer there."""
        facts = PlanFacts(
            number,
            self._log.total,
            self._records_per_batch,
            states,
            self._log.leaving(number),
            self._bounds,
            takes_away=self._settings.after_read is not AfterRead.KEEP,
            now=time.time_ns(),
        )
        plan = FilePlan(facts)
        for path, is_unread in self._watch.take_vanished():
            self._warnings.pop(path, None)
            self._taking_away.discard(path)
            self._report_loss(path, plan.add_vanished(path, is_unread=is_unread))
        self._watch.wake(self._is_still)
        for file in self._watch.readable():
            if plan.room <= 0:
                break
            self._plan_file(plan, file)
        plan.forget(self._taking_away.take(number, self._is_still))
        return plan.entry()

    def _plan_file(self, plan: FilePlan, file: ListedFile) -> None:
        """Add a pending file to the plan.

        Raises:
            ConnectorError: if the file cannot be read, or has changed and ``onChange`` is ``fail``.
        """
        if plan.is_unchanged(file):
            outcome = plan.add(file, NOTHING_NEW)
        else:
            examination = self._examine(plan, file)
            if examination is None:
                return
            outcome = plan.add(file, examination)
            if outcome.change is not None:
                self._report_change(file.path, outcome.change)
            self._log_once(file.path, outcome.warning)
        if outcome.is_finished:
            self._watch.mark_planned(file, has_more=outcome.has_more)
            if outcome.state is not None:
                self._taking_away.add(file, outcome.state, outcome.number)

    def _examine(self, plan: FilePlan, file: ListedFile) -> Examination | None:
        """Look into a file; return None if the file is missing for now.

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
        except FileNotFoundError:  # the next look decides whether the file is gone, or its folder
            return None
        except OSError as error:
            raise ConnectorError(
                f"{self._settings.owner}: file {file.path} cannot be read: {error}"
            ) from error

    def _report_loss(self, path: str, loss: Loss) -> None:
        """Log what is lost with a deleted file, or end the run, as ``onChange`` says.

        Raises:
            ConnectorError: if the run is to end.
        """
        if loss is Loss.UNKNOWN_FILE:
            logger.warning("%s: file %s was deleted before it was read", self._settings.owner, path)
        elif loss is Loss.UNREAD_REST:
            self._report_change(path, "was deleted")

    def _report_change(self, path: str, what: str) -> None:
        """End the run because a file has changed, or log a warning, as ``onChange`` says.

        Raises:
            ConnectorError: if the run is to end.
        """
        error = change_error(self._settings.owner, path, what)
        if self._settings.on_change is OnChange.FAIL:
            raise error
        logger.warning("%s; going on", error.message.partition(";")[0])

    def _log_once(self, subject: str, warning: tuple[str, str] | None) -> None:
        """Log a warning about a route or file, but not again while the warning holds."""
        if warning is None:
            self._warnings.pop(subject, None)
        elif self._warnings.get(subject) != warning[0]:
            self._warnings[subject] = warning[0]
            logger.warning("%s: %s; %s", self._settings.owner, *warning)
