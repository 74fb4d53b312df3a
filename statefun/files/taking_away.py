# SPDX-License-Identifier: Apache-2.0
"""Takes away (deletes or moves) files that were read, once no run can need them again.

A file is taken away when the micro-batch with its last record is committed, and the file has not changed
for a while. The log notes the file on the disk first; then the file is removed; then the next entry of
the log forgets it. So after a crash it is known who has removed a missing file: the application, if the
log has noted the file. Otherwise somebody else has: that file may come back, and is not read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count

from statefun.components.running import Offset
from statefun.files.file_log import FileLog, FileState
from statefun.files.file_settings import AfterRead
from statefun.files.folder_watch import ListedFile

logger = logging.getLogger("statefun.ingress")

_MOVED = "_read"
"""The folder for files that were read, in their own folder."""


class TakingAway:
    """The files that were read, and that the application has still to take away.

    Args:
        owner: the ingress, for messages.
        after_read: what becomes of the files.
        log: the log that notes files before they are taken away.
        committed: returns the offset up to which micro-batches are committed for good.
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
        """Add a file, if all of its content is read that the last look has found.

        Args:
            file: the file.
            state: how far the file is read.
            number: the entry of the log with the last of what is read.
        """
        is_read = state.is_all and state.size == file.facts.size
        if is_read and self._after_read is not AfterRead.KEEP:
            self._finished_files[file.path] = file, number

    def discard(self, path: str) -> None:
        """Leave a file where it is, because it has changed or is no longer there."""
        self._finished_files.pop(path, None)

    @property
    def files(self) -> list[ListedFile]:
        """The files that are not taken away yet."""
        return [file for file, _ in self._finished_files.values()]

    def take(self, at: int, is_still: Callable[[ListedFile], bool]) -> list[str]:
        """Take away files that no run can need; return their paths, which the next entry must forget.

        Args:
            at: the newest entry of the log.
            is_still: returns whether a file has not changed for long enough.
        """
        still_files = [each for each in self._finished_files.values() if is_still(each[0])]
        offset = self._committed() if still_files else None
        if offset is None:
            return []
        ready = [file for file, number in still_files if number <= offset["log"]]
        if ready:
            self._log.note_leaving(at, [file.path for file in ready])
        removed_files = [file for file in ready if self._take(file)]
        for folder in {file.folder for file in removed_files}:
            folder.sync_names()
        return [file.path for file in removed_files]

    def _take(self, file: ListedFile) -> bool:
        self.discard(file.path)
        try:
            if file.folder.facts(file.name) != file.facts:  # the next look notices the change
                return False
            if self._after_read is AfterRead.DELETE:
                file.folder.remove(file.name)
            else:
                file.folder.move(file.name, _free_name(file))
        except OSError as error:
            logger.warning(
                "%s: file %s was read and cannot be taken away: %s; it stays",
                self._owner,
                file.path,
                error,
            )
            return False
        return True


def _free_name(file: ListedFile) -> str:
    """Return the name to which a file is moved: numbers follow the names of equally named files."""
    names = (f"{_MOVED}/{file.name}" + (f".{number}" if number else "") for number in count())
    return next(name for name in names if not file.folder.has(name))
