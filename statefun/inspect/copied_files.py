# SPDX-License-Identifier: Apache-2.0
"""Copies the files of a checkpoint that never change: those of states, and large effects in the outbox.

Their names are unique, so a file that a snapshot has already need not be copied again, and snapshots share such files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder

Progress = Callable[[int, int], None]
"""Is called with the number of copied bytes, and the number of all bytes to copy."""
STATE = "state"
OUTBOX = "outbox"
_VERSION = re.compile(r"(\d+)_")
"""The name of a file that belongs to a version of a state store: the number of the version, and an id of the task."""
_TABLES = "SSTs"
_EFFECTS = ".arrow"
"""The end of the name of a file with large effects, before which is an id of the task."""


def is_permanent(path: str) -> bool:
    """Return whether a file with this path never changes, also in other copies of the same checkpoint.

    >>> is_permanent("state/0/1/8_3f1b.changelog"), is_permanent("outbox/7/0-12-3f1b.arrow")
    (True, True)
    >>> is_permanent("state/0/_metadata/v2/0"), is_permanent("commits/7"), is_permanent("outbox/7/manifest")
    (False, False, False)
    """
    head, *folders, name = PurePosixPath(path).parts if "/" in path else ("", path)
    if head == OUTBOX:
        return name.endswith(_EFFECTS)
    return head == STATE and (_TABLES in folders or _VERSION.match(name) is not None)


def version_of(path: str) -> int:
    """Return the version of a state store that a file belongs to; 0 for a table, which several versions use.

    >>> version_of("state/0/1/8_3f1b.changelog"), version_of("state/0/1/SSTs/000011-3f1b.sst")
    (8, 0)
    """
    *folders, name = PurePosixPath(path).parts
    version = _VERSION.match(name)
    return 0 if version is None or _TABLES in folders else int(version[1])


def copy_files(
    source: Folder,
    target: Folder,
    sizes: Mapping[str, int],
    progress: Progress = lambda *_: None,
) -> dict[str, int]:
    """Copy files; raises FileNotFoundError if one of them is missing.

    Args:
        source: the folder with the files.
        target: the folder to which they are copied.
        sizes: the sizes of the files, by path.
        progress: is called after each file.

    Returns:
        The sizes of the copies, by path.
    """
    total, done, copied = sum(sizes.values()), 0, dict[str, int]()
    for path, size in sizes.items():
        content = read_path(source, path)
        write_path(target, path, content)
        copied[path] = len(content)
        done += size
        progress(done, total)
    return copied


def copy_states(
    checkpoint: Folder, target: Folder, batch: int, progress: Progress
) -> tuple[dict[str, int], dict[str, bytes]] | None:
    """Copy the files of states that are needed after a batch, but for those that the target has already.

    Returns:
        The sizes of the files that never change, by path, and the contents of the few others. None if the application
        has deleted some of the files meanwhile, as it has committed many batches.
    """
    sizes = {
        path: size
        for path, size in below(checkpoint, STATE).items()
        if not PurePosixPath(path).name.startswith(".") and version_of(path) <= batch + 1
    }
    permanent = {path: size for path, size in sizes.items() if is_permanent(path)}
    present = below(target, STATE)
    new = {path: size for path, size in permanent.items() if present.get(path) != size}
    try:
        permanent |= copy_files(checkpoint, target, new, progress)
        others = {path: read_path(checkpoint, path) for path in sizes.keys() - permanent.keys()}
    except FileNotFoundError:
        return None
    # Spark deletes states and offsets of the same age; two batches, as it deletes them one after the other.
    if min(CommitLog(checkpoint).planned_batches()) > max(batch - 2, 0):
        return None
    return permanent, others


def below(folder: Folder, name: str) -> dict[str, int]:
    """Return the sizes of the files in a folder inside of another one, by their paths in the latter."""
    return {f"{name}/{path}": size for path, size in folder.child(name).sizes().items()}


def read_path(folder: Folder, path: str) -> bytes:
    """Return the content of a file below a folder; raises FileNotFoundError."""
    place, name = folder_and_name(folder, path)
    return place.read(name)


def write_path(folder: Folder, path: str, content: bytes) -> None:
    """Create or replace a file below a folder."""
    place, name = folder_and_name(folder, path)
    place.write(name, content)


def folder_and_name(folder: Folder, path: str) -> tuple[Folder, str]:
    """Return the folder of a path inside of ``folder``, and the name of the file."""
    parent, _, name = path.rpartition("/")
    return (folder.child(parent) if parent else folder), name
