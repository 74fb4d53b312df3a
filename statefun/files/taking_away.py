# SPDX-License-Identifier: Apache-2.0
"""Takes away (deletes or moves, as afterRead says) files that were read and that no run needs again.

A file is taken away when the micro-batch with its last record is committed, and the file has stayed
unchanged for a while. First the path of the file is stored in the file log; then the file is deleted or
moved; then the next entry of the file log drops the state of the file. So after a crash it is known who has
removed a missing file: the application, if the file log has its path. Else somebody else has removed it: if
the file comes back, it is not read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from statefun.components.running import Offset
from statefun.files.file_log import FileLog, FileState
from statefun.files.file_settings import AfterRead
from statefun.files.folder_watch import ListedFile

logger = logging.getLogger("statefun.ingress")

_MOVED = "_read"
"""The name of the folder into which files are moved, inside of the folder of the files."""


class TakingAway:
    """Deletes or moves files that were read; holds the files that are read and not removed yet.

    Args:
        owner: the ingress as log texts name it.
        after_read: whether files are kept, deleted or moved.
        log: the file log, which stores the paths of files before they are deleted or moved.
        committed: returns the newest offset whose micro-batches are committed and never run again.
    """

    def __init__(
        self,
        owner: str,
        after_read: AfterRead,
        log: FileLog,
        committed: Callable[[], Offset | None],
    ) -> None:
        self._owner = owner
        self._after_read = after_read
        self._log = log
        self._committed = committed
        self._finished_files: dict[str, tuple[ListedFile, int]] = {}

    def add(self, file: ListedFile, state: FileState, number: int) -> None:
        """Add a file that is to be deleted or moved, if the file is read to its end.

        Args:
            file: the file, as its folder was listed last.
            state: how far the file is read.
            number: the number of the entry of the file log with the last part of the file.
        """
        is_read = state.is_all and state.size == file.facts.size
        if is_read and self._after_read is not AfterRead.KEEP:
            self._finished_files[file.path] = file, number

    def discard(self, path: str) -> None:
        """Remove a file from the files to delete or move, because the file has changed or is missing."""
        self._finished_files.pop(path, None)

    @property
    def files(self) -> list[ListedFile]:
        """The files that are read and not yet deleted or moved."""
        return [file for file, _ in self._finished_files.values()]

    def take(self, at: int, is_still: Callable[[ListedFile], bool]) -> list[str]:
        """Delete or move the files that no run can need again.

        Returns:
            The paths of these files; the next entry of the file log must not mention them any more.

        Args:
            at: the number of the newest entry of the file log.
            is_still: returns whether a file has stayed unchanged for long enough to be complete.
        """
        still_files = [each for each in self._finished_files.values() if is_still(each[0])]
        offset = self._committed() if still_files else None
        if offset is None:
            return []
        ready = [file for file, number in still_files if number <= offset["log"]]
        if ready:
            self._log.store_removals(at, [file.path for file in ready])
        removed_files = [file for file in ready if self._remove(file)]
        # A file that stays is still known: if only its time changes later, it is not read again.
        if staying := {file.path for file in ready} - {file.path for file in removed_files}:
            self._log.withdraw_removals(at, staying)
        for folder in {file.folder for file in removed_files}:
            folder.sync_names()
        return [file.path for file in removed_files]

    def _remove(self, file: ListedFile) -> bool:
        self.discard(file.path)
        try:
            if file.folder.facts(file.name) != file.facts:  # the next listing shows the change
                return False
            if self._after_read is AfterRead.DELETE:
                file.folder.remove(file.name)
            else:
                file.folder.move(file.name, _free_name(file))
        except OSError as error:
            logger.warning(
                "%s: file %s was read and cannot be deleted or moved: %s; it stays in its folder",
                self._owner,
                file.path,
                error,
            )
            return False
        return True


def _free_name(file: ListedFile) -> str:
    """Return a free name for moving a file; if a file of its name exists, a number is added to the name.

    After n files of one name, not each of the n names is tried, but as many as n has binary digits, twice.
    """
    taken, free = -1, 0
    while file.folder.has(_numbered(file.name, free)):
        taken, free = free, max(1, 2 * free)
    while free - taken > 1:
        middle = (taken + free) // 2
        if file.folder.has(_numbered(file.name, middle)):
            taken = middle
        else:
            free = middle
    return _numbered(file.name, free)


def _numbered(name: str, number: int) -> str:
    """Return where a file is moved that is not the first one of its name.

    >>> _numbered("day.csv", 0), _numbered("day.csv", 2)
    ('_read/day.csv', '_read/day.csv.2')
    """
    return f"{_MOVED}/{name}" + (f".{number}" if number else "")
