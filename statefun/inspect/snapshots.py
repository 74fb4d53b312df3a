# SPDX-License-Identifier: Apache-2.0
"""Copies checkpoints: to a snapshot, also while the application runs, and from a snapshot to a new checkpoint.

A snapshot has everything that a start needs to go on after one committed micro-batch. The application replaces or
deletes some files with each micro-batch: these files are copied again until no micro-batch is committed during the
copy. Spark never changes the files of states, and keeps the files of a micro-batch for a hundred further
micro-batches: they are copied afterwards, and a later snapshot in the same folder copies only new ones.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

import attrs

from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.former_queries import (
    FORMER_QUERIES,
    add_former_query,
    former_queries,
    keep_former_queries,
)
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.checkpoint.ingress_order import INGRESSES, IngressOrder, check_format
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE
from statefun.runtime.checkpoint.trace_log import TRACES
from statefun.runtime.preflight.recovery import check_logs
from statefun.runtime.spark_internals.log_files import COMMITS, METADATA, OFFSETS_FOLDER
from statefun.sdk.errors import CheckpointError, ConfigurationError

SNAPSHOT = "snapshot.json"
"""The file that makes a snapshot complete: it is written last."""
_ATTEMPTS = 200
"""How often the changing files are copied until no micro-batch is committed meanwhile."""
_PAUSE = 0.02
"""The time, in seconds, before the changing files are copied again."""
_STATE = "state"
_VERSION = re.compile(r"(\d+)[_.]")
"""A file of a state store that belongs to a version: its name begins with the number of the version."""
_OF_RUN = {"driver.lock", "jvm.lock", "unlocked", SNAPSHOT}
"""Files that say which processes use the checkpoint, and the file of a snapshot."""

Progress = Callable[[int, int], None]
"""Is called with the number of copied bytes, and the number of all bytes to copy."""


@attrs.frozen
class SnapshotFacts:
    """The facts in the file of a snapshot: its micro-batch, its query, and when it was made."""

    batch: int
    """The newest micro-batch that is in the snapshot."""
    query_id: str
    """The id of the checkpoint's query."""
    created: datetime

    @classmethod
    def read(cls, folder: Folder) -> SnapshotFacts:
        """Read the facts of the snapshot in a folder.

        Raises:
            CheckpointError: if the folder has no complete snapshot.
            ConfigurationError: if the folder is empty, or there is none.
        """
        try:
            content = json.loads(read_framed(folder, SNAPSHOT))
            created = datetime.fromisoformat(content["created"])
            return cls(int(content["batch"]), str(content["query"]), created)
        except FileNotFoundError:
            if not folder.names():
                raise ConfigurationError(f"there is no snapshot at {folder.shown}") from None
            raise CheckpointError(
                f"{folder.shown} has no complete snapshot: its file {SNAPSHOT} is missing"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(folder, SNAPSHOT, error) from error

    def write(self, folder: Folder) -> None:
        """Write the file with the facts, which makes the snapshot in a folder complete."""
        content = {
            "batch": self.batch,
            "query": self.query_id,
            "created": self.created.isoformat(),
        }
        write_framed(folder, SNAPSHOT, json.dumps(content).encode())


def take_snapshot(
    checkpoint: Folder, target: Folder, progress: Progress = lambda *_: None
) -> SnapshotFacts:
    """Copy the newest committed micro-batch of a checkpoint to a folder; the application may run meanwhile.

    Args:
        checkpoint: the checkpoint.
        target: an empty folder, or one that has an earlier snapshot of the checkpoint, which is replaced.
        progress: is called while files of states are copied.

    Raises:
        CheckpointError: if the checkpoint is empty or damaged, or the application commits too often.
        ConfigurationError: if there is no checkpoint, or the target has other files.
    """
    check_format(checkpoint)
    query_id = CommitLog(checkpoint).query_id()
    if not query_id:
        raise missing_checkpoint(checkpoint)
    IngressOrder.read(checkpoint)
    if CommitLog(checkpoint).newest() < 0:
        raise CheckpointError(
            f"checkpoint {checkpoint.shown} has no committed micro-batch yet, so there is nothing to copy"
        )
    _check_target(checkpoint, target, query_id)
    target.remove(SNAPSHOT)
    copied = None
    while copied is None:
        batch, kept = _copy_changing(checkpoint, target)
        copied = _copy_states(checkpoint, target, batch, progress)
    for path in target.sizes().keys() - kept - copied - {FORMER_QUERIES}:
        folder, name = _place(target, path)
        folder.remove(name)
    keep_former_queries(checkpoint, target)
    snapshot = SnapshotFacts(batch, query_id, datetime.now(timezone.utc))
    snapshot.write(target)
    return snapshot


def restore_snapshot(
    snapshot: Folder,
    checkpoint: Folder,
    progress: Progress = lambda *_: None,
    *,
    may_repeat: bool = False,
) -> SnapshotFacts:
    """Make a new checkpoint from a snapshot.

    Args:
        snapshot: the folder with the snapshot.
        checkpoint: an empty folder, or one that does not exist.
        progress: is called while files are copied.
        may_repeat: whether the new checkpoint forgets what its exactly-once egresses have published, so that
            records that were published after the snapshot may be published again.

    Raises:
        CheckpointError: if the snapshot is not complete, or damaged.
        ConfigurationError: if the folder of the checkpoint has files.
    """
    facts = SnapshotFacts.read(snapshot)
    check_format(snapshot)
    check_logs(snapshot)
    if checkpoint.names():
        raise ConfigurationError(
            f"{checkpoint.shown} has files: give an empty folder, or one that does not exist"
        )
    sizes = {
        path: size
        for path, size in snapshot.sizes().items()
        if path not in {SNAPSHOT, INGRESSES} and not (may_repeat and path.startswith("runs/"))
    }
    # A start refuses half of a copy: one that has offsets, and not yet the commit or the file of ingresses.
    offsets = f"{OFFSETS_FOLDER}/{facts.batch}"
    _copy(snapshot, checkpoint, {offsets: sizes.pop(offsets)}, lambda *_: None)
    _copy(snapshot, checkpoint, sizes, progress)
    if may_repeat:
        query_id = _begin_anew(checkpoint)
        # A checkpoint that is restored later ends the transactions of this one; a backup may be read-only.
        with suppress(OSError):
            add_former_query(snapshot, query_id)
    checkpoint.write(INGRESSES, snapshot.read(INGRESSES))
    return facts


def _copy_changing(checkpoint: Folder, target: Folder) -> tuple[int, set[str]]:
    """Copy the files that the application may change meanwhile: all but those of the state stores and of traces.

    Returns:
        The number of the committed micro-batch whose files were copied, and the paths of the files.
    """
    log = CommitLog(checkpoint)
    for _ in range(_ATTEMPTS):
        batch = log.newest()
        try:
            paths = _copy_once(checkpoint, target, batch)
        except FileNotFoundError:  # deleted after it was listed
            paths = set()
        if paths and log.newest() == batch:
            return batch, paths
        time.sleep(_PAUSE)
    raise CheckpointError(
        f"the application commits its micro-batches faster than the files of one can be copied from "
        f"{checkpoint.shown} to {target.shown}: stop it for the time of the snapshot, or copy to a faster folder"
    )


def _copy_once(checkpoint: Folder, target: Folder, batch: int) -> set[str]:
    """Copy the changing files, the outbox first.

    Before a batch is deleted from the outbox, its timers are in their log, and its records are published: so if the
    outbox lacks a batch, the files that are copied later have its effects.
    """
    outbox = _of_batch([f"outbox/{path}" for path in checkpoint.child("outbox").sizes()], batch)
    paths = _copy_all(checkpoint, target, outbox)
    others = [path for path in checkpoint.sizes() if not path.startswith("outbox/")]
    return paths | _copy_all(checkpoint, target, _of_batch(others, batch))


def _copy_all(checkpoint: Folder, target: Folder, all_paths: Iterable[str]) -> set[str]:
    paths = set()
    for path in all_paths:
        (source, name), (copy, _) = _place(checkpoint, path), _place(target, path)
        if path == PLAYGROUND_FILE and checkpoint.is_local and target.is_local:
            _copy_database(Path(source.location) / name, Path(copy.location) / name)
        else:
            copy.write(name, source.read(name))
        paths.add(path)
    return paths


def _of_batch(paths: Iterable[str], batch: int) -> Iterator[str]:
    """Yield the paths to copy: no files of states or traces, no locks, nothing of micro-batches after ``batch``."""
    for path in paths:
        head, _, rest = path.partition("/")
        name = PurePosixPath(path).name
        if head in {_STATE, TRACES, FORMER_QUERIES} or name.startswith(".") or head in _OF_RUN:
            continue
        if name.startswith(
            f"{PLAYGROUND_FILE}-"
        ):  # parts of the database, which is copied as a whole
            continue
        if head in {OFFSETS_FOLDER, COMMITS, "outbox"}:
            number = rest.partition("/")[0]
            if not number.isdecimal() or int(number) > batch:
                continue
        yield path


def _copy_states(
    checkpoint: Folder, target: Folder, batch: int, progress: Progress
) -> set[str] | None:
    """Copy the files of states that are needed after a batch; return their paths.

    The result is None if the application has deleted some of them meanwhile, as it has committed many batches.
    """
    sizes = {
        path: size
        for path, size in checkpoint.child(_STATE).sizes().items()
        if not PurePosixPath(path).name.startswith(".") and _version(path) <= batch + 1
    }
    present = target.child(_STATE).sizes()
    new = {path: size for path, size in sizes.items() if present.get(path) != size}
    try:
        _copy(checkpoint.child(_STATE), target.child(_STATE), new, progress)
    except FileNotFoundError:
        return None
    # Spark deletes states and offsets of the same age; two batches, as it deletes them one after the other.
    if min(CommitLog(checkpoint).planned_batches()) > max(batch - 2, 0):
        return None
    return {f"{_STATE}/{path}" for path in sizes}


def _version(path: str) -> int:
    """Return the version of a state store that a file belongs to; 0 for an SST file, which several versions use.

    >>> _version("0/1/8_3f1b.changelog"), _version("0/1/SSTs/000011-3f1b.sst")
    (8, 0)
    """
    *folders, name = PurePosixPath(path).parts
    version = _VERSION.match(name)
    return 0 if version is None or "SSTs" in folders else int(version[1])


def _copy(source: Folder, target: Folder, sizes: dict[str, int], progress: Progress) -> None:
    total, done = sum(sizes.values()), 0
    for path, size in sizes.items():
        (folder, name), (copy, _) = _place(source, path), _place(target, path)
        copy.write(name, folder.read(name))
        done += size
        progress(done, total)


def _copy_database(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(source)) as database, closing(sqlite3.connect(target)) as copy:
        database.backup(copy)


def is_noted(snapshot: Folder, checkpoint: Folder) -> bool:
    """Return whether a snapshot has the id of a checkpoint's query, which a restore with ``may_repeat`` notes there."""
    return CommitLog(checkpoint).query_id() in former_queries(snapshot)


def _begin_anew(checkpoint: Folder) -> str:
    """Give the query of a checkpoint another id, so that its egresses begin with new markers; return the id."""
    metadata = json.loads(checkpoint.read(METADATA))
    query_id = str(uuid.uuid4())
    add_former_query(checkpoint, str(metadata["id"]))
    checkpoint.write(METADATA, json.dumps({**metadata, "id": query_id}).encode())
    outbox = Outbox(checkpoint)
    for batch in outbox.batches():
        manifest = outbox.manifest(batch)
        if manifest is not None:
            manifest.query_id = query_id
            outbox.stage(manifest)
    return query_id


def _check_target(checkpoint: Folder, target: Folder, query_id: str) -> None:
    if f"{target.location}/".startswith(f"{checkpoint.location}/"):
        raise ConfigurationError(
            f"{target.shown} is inside of the checkpoint: give another folder for the snapshot"
        )
    if not target.names():
        return
    if target.has(SNAPSHOT):
        former = SnapshotFacts.read(target).query_id
    else:  # an earlier snapshot that was not completed
        former = CommitLog(target).query_id()
    if former != query_id:
        raise ConfigurationError(
            f"{target.shown} has other files than a snapshot of this checkpoint: give an empty folder, or one "
            "with an earlier snapshot of the same checkpoint"
        )


def _place(folder: Folder, path: str) -> tuple[Folder, str]:
    """Return the folder of a path inside of ``folder``, and the name of the file."""
    parent, _, name = path.rpartition("/")
    return (folder.child(parent) if parent else folder), name
