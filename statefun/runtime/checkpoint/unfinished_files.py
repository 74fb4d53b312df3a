# SPDX-License-Identifier: Apache-2.0
"""Deletes the files of a checkpoint that processes have not finished, since they were killed while they wrote.

Such a file has a temporary name, for which nobody looks. Folders whose writer deletes all files that it does not know,
such as those of timers, need no help.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import timedelta

from statefun.runtime.checkpoint.checkpoint_files import is_temporary
from statefun.runtime.checkpoint.folder import Folder

_FOLDERS = ("connectors", "repairs", "runs", "sent", "traces")
_AGE = timedelta(days=1)
"""The age from which on a file counts as unfinished: commands may write into a checkpoint at any time."""


def remove_unfinished_files(checkpoint: Folder) -> None:
    """Delete the unfinished files of a checkpoint that this process has locked.

    In an object store there are none: it shows a file when it is complete.
    """
    if checkpoint.is_object_store:
        return
    before = time.time_ns() - _AGE // timedelta(microseconds=1) * 1000
    _remove(checkpoint, before, _FOLDERS)


def _remove(folder: Folder, before: int, below: Collection[str] | None = None) -> None:
    """Delete the unfinished files in a folder that were modified last before a time.

    Args:
        folder: the folder.
        before: the time, in nanoseconds since the epoch.
        below: the names of the folders inside in which to look as well; None: all.
    """
    for name, facts in folder.entries().items():
        if facts is None:
            if below is None or name in below:
                _remove(folder.child(name), before)
        elif is_temporary(name) and facts.modified < before:
            folder.remove(name)
