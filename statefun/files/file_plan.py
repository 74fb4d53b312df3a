# SPDX-License-Identifier: Apache-2.0
"""Decides what a micro-batch reads of files: from plain facts, without file systems, clocks or logs.

The facts are the states of known files, the listed files, and what an examination of each file's content
has found. Errors and warnings are results here: the caller raises and logs them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from enum import Enum

import attrs

from statefun.components.running import FileFacts
from statefun.files.examining import Examination
from statefun.files.file_log import Entry, FileRange, FileState
from statefun.files.folder_watch import ListedFile

_KNOWN_FOR = timedelta(days=7)
"""How long after its disappearance a file that comes back is the known file, and not a new one."""
_MICROSECOND = timedelta(microseconds=1)


@attrs.frozen
class PlanFacts:
    """What is known before a micro-batch is planned."""

    number: int
    """The newest entry of the log."""
    records: int
    """The records of all micro-batches up to this entry."""
    limit: int
    """How many records a micro-batch has at most."""
    states: Mapping[str, FileState]
    """How far files are read, by their paths."""
    leaving: Collection[str] = ()
    """The paths of files that a run may have taken away after this entry, before it could add the next
    one."""
    bounds: Mapping[str, int] | None = None
    """The sizes, by path, at which a bounded run ends its files; None if the run is not bounded."""
    takes_away: bool = False
    """Whether files are deleted or moved once they are read."""
    now: int = 0
    """The time, in nanoseconds since the epoch."""


class Loss(Enum):
    """What is lost with a file that is no longer there."""

    NOTHING = "nothing"
    UNKNOWN_FILE = "a file of which nothing was read"
    UNREAD_REST = "the rest of a file of which a part was read"


@attrs.frozen
class FileOutcome:
    """What the plan has taken from one file."""

    change: str | None
    """How a known file has changed, if the records that were read of it are affected."""
    warning: tuple[str, str] | None
    """What is odd about the file, and what happens."""
    is_finished: bool
    """Whether the plan has all of the file that can be read now."""
    has_more: bool
    """Whether more of the file may be read once it has not changed for a while."""
    state: FileState | None
    """How far the file is read; None if nothing is, or if it is read from its beginning later."""
    number: int
    """The entry of the log that has the last of what is read."""


@attrs.define
class FilePlan:
    """The plan of one micro-batch; it grows file by file."""

    facts: PlanFacts
    _ranges: list[FileRange] = attrs.field(factory=list)
    _gone: list[str] = attrs.field(factory=list)
    _forgotten: list[str] = attrs.field(factory=list)
    _back: list[str] = attrs.field(factory=list)
    _records: int = 0

    @property
    def room(self) -> int:
        """How many more records fit into the micro-batch."""
        return self.facts.limit - self._records

    def add_vanished(self, path: str, *, is_unread: bool) -> Loss:
        """Plan for a file that is no longer listed; return what is lost with it.

        Args:
            path: the path of the file.
            is_unread: whether a look has found something in the file that is not read.
        """
        state = self.facts.states.get(path)
        if state is None:
            return Loss.UNKNOWN_FILE if is_unread else Loss.NOTHING
        if path in self.facts.leaving:
            self._forgotten.append(path)
        elif not (state.is_gone and state.gone):
            self._gone.append(path)
            return Loss.NOTHING if state.is_all or state.is_gone else Loss.UNREAD_REST
        elif self.facts.now - state.gone > _KNOWN_FOR // _MICROSECOND * 1000:
            self._forgotten.append(path)
        return Loss.NOTHING

    def state_of(self, file: ListedFile) -> FileState | None:
        """Return how far a listed file is read; None if it replaces a file that was taken away."""
        state = self.facts.states.get(file.path)
        if state is None or file.path not in self.facts.leaving:
            return state
        # A run has taken the known file away, and crashed before it could forget it.
        is_other = file.facts.size == state.size and file.facts.modified != state.modified
        return None if is_other else state

    def is_unchanged(self, file: ListedFile) -> bool:
        """Return whether all of a file is read, and it is as it was then: it need not be examined."""
        state = self.state_of(file)
        return (
            state is not None
            and state.is_all
            and not state.is_gone
            and file.facts == FileFacts(state.size, state.modified)
        )

    def end_of(self, file: ListedFile) -> int:
        """Return where to end in a file, in bytes."""
        size, bounds = file.facts.size, self.facts.bounds
        return size if bounds is None else min(size, bounds.get(file.path, 0))

    def add(self, file: ListedFile, examination: Examination) -> FileOutcome:
        """Plan what an examination has found in a file; return what has become of the file."""
        path, state = file.path, self.state_of(file)
        change = examination.change
        if state is None or self._may_be_other(state):
            change = None
        if examination.change is not None or (state is None and path in self.facts.states):
            self._forgotten.append(path)
        elif state is not None and state.is_gone and not examination.ranges:
            self._back.append(path)
        for part in examination.ranges:
            first = self.facts.records + self._records
            self._ranges.append(attrs.evolve(part, first=first))
            self._records += part.count
            state = part.state
        has_ranges = bool(examination.ranges)
        warning = examination.warning
        if file.was_cut and examination.change is None:
            warning = f"file {path} was cut off before all of it was read", "going on"
        return FileOutcome(
            change,
            warning,
            is_finished=not has_ranges or (state is not None and state.is_all),
            has_more=examination.has_more,
            state=state if has_ranges or examination.change is None else None,
            number=self.facts.number + has_ranges,
        )

    def forget(self, paths: Sequence[str]) -> None:
        """Plan to forget files that were taken away."""
        self._forgotten += paths

    def entry(self) -> Entry:
        """Return the entry of the log with the plan."""
        records = self.facts.records + self._records
        return Entry(records, self._ranges, self._gone, self._forgotten, self._back, self.facts.now)

    def _may_be_other(self, state: FileState) -> bool:
        """Return whether another file may replace a known one without a loss."""
        is_done = state.is_all and self.facts.takes_away
        nothing_was_read = state.end == 0
        return state.is_gone or is_done or nothing_was_read
