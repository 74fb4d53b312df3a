# SPDX-License-Identifier: Apache-2.0
"""Files of folders as records for functions: the driver finds their lines, and tasks read them.

A file may grow by whole lines, and new files may come. What a micro-batch reads is written into the
checkpoint before it is planned, so that it reads the same after a crash.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import attrs
from pyspark.sql import DataFrame

from statefun.components.running import FileFacts, Folder, Offset, Reading
from statefun.files.examining import NOTHING, Examined, examine
from statefun.files.file_log import Entry, FileLog, FileRange, FileState
from statefun.files.file_settings import AfterRead, IngressFiles, OnChange
from statefun.files.folder_watch import Clock, Found, Watch
from statefun.files.parsing import changed, encode_task, read_task
from statefun.files.places import checked_place
from statefun.files.taking_away import TakingAway
from statefun.sdk.errors import ConnectorError

logger = logging.getLogger("statefun.ingress")

_LOOK = timedelta(milliseconds=200)
"""Between two looks at folders in which nothing was new."""
_REMOTE_LOOK = timedelta(seconds=5)
"""The same where a look is a request, after some such looks."""
_LONGEST_LOOK = timedelta(seconds=30)
_SHARE = 10
"""Looks at large folders take a tenth of the time, up to the limit above."""
_QUIET = timedelta(seconds=10)
"""A file is as its writer leaves it when it has not changed for so long."""
_QUIET_BOUNDED = timedelta(seconds=1)
"""The same in a run that reads what is there."""
_KNOWN_FOR = timedelta(days=7)
"""A file that comes back is known if it was gone for no longer."""


def read_files(reading: Reading) -> DataFrame:
    """Return the records of an ingress.

    Raises:
        ConnectorError: if there is no folder or file of a path.
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
        folder: of the checkpoint, for the log.
        records_per_batch: how many records a micro-batch takes at most.
        committed: returns the offset up to which micro-batches are committed, whatever happens.
        clock: measures how long files are still.

    Raises:
        ConfigurationError: if pyarrow knows no file system of a path.
        ConnectorError: if there is no folder or file of a path.
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
        # Once: a folder that goes away for a while is still one.
        self._places = {
            route: checked_place(settings.owner, files.path)
            for route, files in settings.files.items()
        }
        self._log = FileLog(folder)
        self._most = records_per_batch
        self._clock = clock or Clock()
        self._watch = Watch(settings.owner, self._places, self._clock)
        self._taking_away = TakingAway(settings.owner, settings.after_read, self._log, committed)
        self._is_remote = not all(place.folder.is_local for place in self._places.values())
        self._next_look = self._clock.now()
        self._idle = timedelta(0)
        self._is_bounded = False
        self._limits: dict[str, int] | None = None
        """The sizes of files at the first look of a bounded run, which is the last one."""
        self._logged: dict[str, str] = {}
        """The warnings that hold, by what they are about."""
        self._stopped = threading.Event()

    def initial_offset(self) -> Offset:
        """Begin before the first entry of the log."""
        return {"log": 0, "records": 0}

    def latest_offset(self, start: Offset) -> Offset:
        """Return the next entry of the log, once there is something to read."""
        number = start["log"]
        states = self._log.states(number)
        if self._log.has(number + 1):  # planned by a run that has crashed
            entry = self._log.read(number + 1)
            self._log.advance(number + 1, entry)
        else:
            entry = self._next(number, states)
            if entry.is_empty:
                return start
            self._log.write(number + 1, entry)
        return {"log": number + 1, "records": entry.records}

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Return the parts of files between two entries of the log."""
        owner, files = self._settings.owner, self._settings.files
        may_change = self._settings.on_change is OnChange.GO_ON
        found: list[bytes] = []
        for number in range(start["log"] + 1, end["log"] + 1):
            for part in self._log.read(number).ranges:
                if part.route not in files:
                    raise ConnectorError(
                        f"{owner}: the checkpoint has planned to read {part.route}, which the "
                        "ingress lists no more; list it for one more start"
                    )
                location = self._places[part.route].folder.location
                settings = files[part.route]
                found.append(encode_task(part, location, settings, owner, may_change=may_change))
        return found

    def bound(self) -> None:
        """Read no further than what is there now."""
        self._is_bounded = True

    def stop(self) -> None:
        """Wait for nothing any longer."""
        self._stopped.set()

    @property
    def _quiet(self) -> float:
        return (_QUIET_BOUNDED if self._is_bounded else _QUIET).total_seconds()

    def _is_still(self, found: Found) -> bool:
        return self._watch.looked - found.since >= self._quiet

    def _next(self, number: int, states: Mapping[str, FileState]) -> Entry:
        """Return what the next micro-batch reads; an empty entry if there is nothing."""
        if self._limits is None and self._clock.now() >= self._next_look:
            self._look(states)
        entry = self._planned(number, states)
        waiting = [*self._watch.waiting.values(), *self._taking_away.waiting]
        if not self._is_bounded or not entry.is_empty or not waiting:
            return entry
        ready = max(found.since for found in waiting) + self._quiet
        if not self._clock.wait(self._stopped, max(0.0, ready - self._clock.now())):
            self._look(states)
            entry = self._planned(number, states)
        return entry

    def _look(self, states: Mapping[str, FileState]) -> None:
        """Look at the folders, and decide when to do so again.

        Raises:
            ConnectorError: if they cannot be listed.
        """
        began = self._clock.now()
        takes_away = self._settings.after_read is not AfterRead.KEEP
        try:
            has_changed = self._watch.look(states, may_be_empty=takes_away)
        except OSError as error:
            raise ConnectorError(
                f"{self._settings.owner}: its files cannot be listed: {error}"
            ) from error
        if self._is_bounded and self._limits is None:
            self._limits = self._watch.sizes()
        now, longest = self._clock.now(), _REMOTE_LOOK if self._is_remote else _LOOK
        self._idle = timedelta(0) if has_changed else max(_LOOK, min(2 * self._idle, longest))
        busy = _SHARE * timedelta(seconds=now - began)
        self._next_look = now + min(max(self._idle, busy), _LONGEST_LOOK).total_seconds()
        for route in self._places:
            trouble = self._watch.troubles.get(route)
            self._log_once(
                f"route {route}", None if trouble is None else (trouble, "it is waited for")
            )

    def _planned(self, number: int, states: Mapping[str, FileState]) -> Entry:
        """Return what is to be read of pending files, and what is no longer there."""
        gone, forgotten = self._absent(number, states)
        ranges: list[FileRange] = []
        back: list[str] = []
        total = self._log.total
        self._watch.wake(self._is_still)
        for path, found in self._watch.readable():
            left = self._most - (total - self._log.total)
            if left <= 0:
                break
            state = self._state(number, found, states)
            examined = self._examined(found, state, left)
            if examined is None:
                continue
            if examined.change is not None or (state is None and path in states):
                forgotten.append(path)
            elif state is not None and state.is_gone and not examined.ranges:
                back.append(path)
            for part in examined.ranges:
                ranges.append(attrs.evolve(part, first=total))
                total += part.count
            if examined.ranges:
                state = examined.ranges[-1].state
                if not state.is_all:  # it is looked at again
                    continue
            self._watch.examined(found, has_more=examined.has_more)
            if state is not None and (examined.change is None or examined.ranges):
                self._taking_away.add(found, state, number + bool(examined.ranges))
        forgotten += self._taking_away.take(number, self._is_still)
        return Entry(total, ranges, gone, forgotten, back, time.time_ns())

    def _state(
        self, number: int, found: Found, states: Mapping[str, FileState]
    ) -> FileState | None:
        """Return how far a file is read; None if it has come in the place of one that was taken away."""
        state = states.get(found.path)
        if state is None or found.path not in self._log.leaving(number):
            return state
        # Before it forgot that one, the run has crashed.
        is_other = found.facts.size == state.size and found.facts.modified != state.modified
        return None if is_other else state

    def _absent(self, number: int, states: Mapping[str, FileState]) -> tuple[list[str], list[str]]:
        """Return the files that are gone, and those that were gone for so long that they are forgotten.

        Raises:
            ConnectorError: if one was not read to its end, and that is to end the run.
        """
        gone: list[str] = []
        forgotten: list[str] = []
        for path, is_unread in self._watch.take_vanished():
            self._logged.pop(path, None)
            self._taking_away.discard(path)
            state = states.get(path)
            if state is None:
                if is_unread:
                    logger.warning(
                        "%s: file %s was deleted before it was read", self._settings.owner, path
                    )
            elif path in self._log.leaving(number):
                forgotten.append(path)
            elif not (state.is_gone and state.gone):
                if not (state.is_all or state.is_gone):
                    self._change(path, "was deleted")
                gone.append(path)
            elif time.time_ns() - state.gone > _KNOWN_FOR.total_seconds() * 1e9:
                forgotten.append(path)
        return gone, forgotten

    def _examined(self, found: Found, state: FileState | None, most: int) -> Examined | None:
        """Look into a file, if there may be something new in it; None if it is not there for now.

        Raises:
            ConnectorError: if it cannot be read, or has changed and that is to end the run.
        """
        facts, limit = found.facts, found.facts.size
        if self._limits is not None:
            limit = min(limit, self._limits.get(found.path, 0))
        is_read = state is not None and state.is_all and not state.is_gone
        if state is not None and is_read and facts == FileFacts(state.size, state.modified):
            return NOTHING
        files, unfinished = self._settings.files[found.route], self._settings.unfinished_line
        try:
            examined = examine(
                found, state, files, unfinished, limit, most, is_still=self._is_still(found)
            )
        except FileNotFoundError:  # the next look sees whether the file is gone, or its folder
            return None
        except OSError as error:
            raise ConnectorError(
                f"{self._settings.owner}: file {found.path} cannot be read: {error}"
            ) from error
        if state is not None and examined.change is not None and not self._may_be_other(state):
            self._change(found.path, examined.change)
        warning = examined.warning
        if found.was_cut and examined.change is None:
            warning = f"file {found.path} was cut off before all of it was read", "going on"
        self._log_once(found.path, warning)
        return examined

    def _may_be_other(self, state: FileState) -> bool:
        """Return whether another file may come in the place of one that is known."""
        is_done = state.is_all and self._settings.after_read is not AfterRead.KEEP
        nothing_was_read = state.end == 0
        return state.is_gone or is_done or nothing_was_read

    def _change(self, path: str, what: str) -> None:
        """End the run for a file that has changed, or go on as the ingress says.

        Raises:
            ConnectorError: if the run is to end.
        """
        error = changed(self._settings.owner, path, what)
        if self._settings.on_change is OnChange.FAIL:
            raise error
        logger.warning("%s; going on", error.message.partition(";")[0])

    def _log_once(self, about: str, warning: tuple[str, str] | None) -> None:
        """Log a warning, but not again while it holds."""
        if warning is None:
            self._logged.pop(about, None)
        elif self._logged.get(about) != warning[0]:
            self._logged[about] = warning[0]
            logger.warning("%s: %s; %s", self._settings.owner, *warning)
