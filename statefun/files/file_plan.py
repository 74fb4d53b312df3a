# SPDX-License-Identifier: Apache-2.0
"""Decides which parts of files a micro-batch reads, without file systems, clocks or logging.

A plan is made from plain values: the states of known files, the files that the folders have, and the
result of the examination of each file. The functions return problems: the file source raises them as
errors or logs them as warnings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from enum import Enum

import attrs

from statefun.components.running import FileFacts
from statefun.files.examining import Examination
from statefun.files.file_log import FileRange, FileState, LogEntry
from statefun.files.folder_watch import ListedFile

_KNOWN_FOR = timedelta(days=7)
"""How long a missing file stays known: a file that comes back within this time is not read again."""
_MICROSECOND = timedelta(microseconds=1)


@attrs.frozen
class PlanFacts:
    """The values from which a micro-batch is planned."""

    number: int
    """The number of the newest entry of the file log."""
    records: int
    """How many records all micro-batches up to this entry have read."""
    limit: int
    """How many records a micro-batch has at most."""
    states: Mapping[str, FileState]
    """The states of known files, by their paths."""
    removals: Collection[str] = ()
    """The paths of files that a run may have deleted or moved after this entry, before it crashed."""
    bounds: Mapping[str, int] | None = None
    """In a bounded run, how many bytes of each file are read at most, by path; else None."""
    takes_away: bool = False
    """Whether the ingress deletes or moves files once they are read."""
    now: int = 0
    """The present time, in nanoseconds since the epoch."""


class Loss(Enum):
    """What the application can no longer read because a file is missing."""

    NOTHING = "nothing"
    UNKNOWN_FILE = "a file of which nothing was read"
    UNREAD_REST = "the rest of a file of which a part was read"


@attrs.frozen
class PlannedFile:
    """How :meth:`FilePlan.add` has planned one file, and which problems of the file are to be reported."""

    change: str | None
    """How a file has changed after records of it were read; None if it has not, or if that is no problem."""
    warning: tuple[str, str] | None
    """A warning about the file for the log: what is unusual, and what the application does."""
    is_finished: bool
    """Whether the plan includes all of the file that can be read now."""
    has_more: bool
    """Whether more of the file may become readable once the file has stayed unchanged for a while."""
    state: FileState | None
    """The state of the file after the planned micro-batch.

    None if no part of the file is read, or if a later micro-batch reads it from its beginning.
    """
    number: int
    """The number of the entry of the file log that has the last part of the file."""


@attrs.define
class FilePlan:
    """The plan of one micro-batch: the parts of files that it reads; files are added one by one."""

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

    def mark_missing(self, path: str, *, is_unread: bool) -> Loss:
        """Mark a file as missing in the plan; return what can no longer be read of the file.

        Args:
            path: the path of the file.
            is_unread: whether the file had content that was not read.
        """
        state = self.facts.states.get(path)
        if state is None:
            return Loss.UNKNOWN_FILE if is_unread else Loss.NOTHING
        if path in self.facts.removals:
            self._forgotten.append(path)
        elif not (state.is_gone and state.gone):
            self._gone.append(path)
            return Loss.NOTHING if state.is_all or state.is_gone else Loss.UNREAD_REST
        elif self.facts.now - state.gone > _KNOWN_FOR // _MICROSECOND * 1000:
            self._forgotten.append(path)
        return Loss.NOTHING

    def state_of(self, file: ListedFile) -> FileState | None:
        """Return the state of a file; None if the file is new, or replaces a removed file at this path."""
        state = self.facts.states.get(file.path)
        if state is None or file.path not in self.facts.removals:
            return state
        # A run has deleted or moved the known file, and crashed before the next entry dropped its state. Or it has
        # crashed just before the removal, and the known file has got another time: a new file can look the same. As
        # that one would be lost, the file is read, and `add` warns.
        is_other = file.facts.size == state.size and file.facts.modified != state.modified
        return None if is_other else state

    def is_unchanged(self, file: ListedFile) -> bool:
        """Return whether a file is read to its end and has not changed since, so that it need not be examined."""
        state = self.state_of(file)
        return (
            state is not None
            and state.is_all
            and not state.is_gone
            and file.facts == FileFacts(state.size, state.modified)
        )

    def end_of(self, file: ListedFile) -> int:
        """Return how many bytes of a file the micro-batch may read, from the file's beginning on."""
        size, bounds = file.facts.size, self.facts.bounds
        return size if bounds is None else min(size, bounds.get(file.path, 0))

    def add(self, file: ListedFile, examination: Examination) -> PlannedFile:
        """Add to the plan the parts of a file that its examination has found; return how it is planned."""
        path, state = file.path, self.state_of(file)
        change = examination.change
        if state is None or self._may_be_new(state):
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
        if path in self.facts.states and self.state_of(file) is None and has_ranges:
            warning = (
                f"file {path} has another time than the file that a run was about to delete or move when it crashed",
                "it is read as a new file",
            )
        if file.was_cut and examination.change is None:
            warning = (
                f"file {path} was cut off before all of it was read",
                "the lost part is not read",
            )
        return PlannedFile(
            change,
            warning,
            is_finished=not has_ranges or (state is not None and state.is_all),
            has_more=examination.has_more,
            state=state if has_ranges or examination.change is None else None,
            number=self.facts.number + has_ranges,
        )

    def forget(self, paths: Sequence[str]) -> None:
        """Plan to drop the states of files that the ingress has deleted or moved."""
        self._forgotten += paths

    def entry(self) -> LogEntry:
        """Return the entry of the file log that holds this plan."""
        records = self.facts.records + self._records
        return LogEntry(
            records, self._ranges, self._gone, self._forgotten, self._back, self.facts.now
        )

    def _may_be_new(self, state: FileState) -> bool:
        """Return whether a changed file counts as a new file that has taken the path of the known file.

        This holds if the known file was missing, if none of it was read, or if it was read to its end and
        the ingress deletes or moves such files. ``onChange`` does not apply to a new file.

        Args:
            state: the state of the known file.
        """
        is_done = state.is_all and self.facts.takes_away
        nothing_was_read = state.end == 0
        return state.is_gone or is_done or nothing_was_read
