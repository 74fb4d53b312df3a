# SPDX-License-Identifier: Apache-2.0
"""Deletes or moves files that were read, once no run can need them again.

A file is taken away when the micro-batch that has read the last of it is committed, and the file has
not changed for a while. That it is to be taken away is on the disk before its removal, and that is
before it is forgotten. So after a crash, a file that is missing is known to have been taken away, or
else to be somebody else's doing: then it may come back, and is not read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count

from statefun.components.running import Offset
from statefun.files.file_log import FileLog, FileState
from statefun.files.file_settings import AfterRead
from statefun.files.folder_watch import Found

logger = logging.getLogger("statefun.ingress")

_MOVED = "_read"
"""The folder for files that were read, in their own folder."""


class TakingAway:
    """Files that were read, and wait for being taken away.

    Args:
        owner: whose they are, for messages.
        after_read: what becomes of them.
        log: where is noted what is taken away.
        committed: returns the offset up to which micro-batches are committed, whatever happens.
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
        self._waiting: dict[str, tuple[Found, int]] = {}

    def add(self, found: Found, state: FileState, number: int) -> None:
        """Take note of a file, if all of it was read that was seen; the last of it is in an entry."""
        is_read = state.is_all and state.size == found.facts.size
        if is_read and self._after_read is not AfterRead.KEEP:
            self._waiting[found.path] = found, number

    def discard(self, path: str) -> None:
        """Leave a file where it is: it has changed, or is not there."""
        self._waiting.pop(path, None)

    @property
    def waiting(self) -> list[Found]:
        """The files that are still there."""
        return [found for found, _ in self._waiting.values()]

    def take(self, at: int, is_still: Callable[[Found], bool]) -> list[str]:
        """Take away what can be; return the paths of these files, which the next entry is to forget.

        Args:
            at: the newest entry of the log.
            is_still: tells whether a file has not changed for long enough.
        """
        still = [each for each in self._waiting.values() if is_still(each[0])]
        offset = self._committed() if still else None
        if offset is None:
            return []
        ready = [found for found, number in still if number <= offset["log"]]
        if ready:
            self._log.note_leaving(at, [found.path for found in ready])
        taken = [found for found in ready if self._take(found)]
        for folder in {found.folder for found in taken}:
            folder.sync_names()
        return [found.path for found in taken]

    def _take(self, found: Found) -> bool:
        self.discard(found.path)
        try:
            if found.folder.facts(found.name) != found.facts:  # the next look sees it
                return False
            if self._after_read is AfterRead.DELETE:
                found.folder.remove(found.name)
            else:
                found.folder.move(found.name, _free_name(found))
        except OSError as error:
            logger.warning(
                "%s: file %s was read and cannot be taken away: %s; it stays",
                self._owner,
                found.path,
                error,
            )
            return False
        return True


def _free_name(found: Found) -> str:
    """Return where to move a file: files of one name come one after the other."""
    names = (f"{_MOVED}/{found.name}" + (f".{number}" if number else "") for number in count())
    return next(name for name in names if not found.folder.has(name))
