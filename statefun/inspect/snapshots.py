# SPDX-License-Identifier: Apache-2.0
"""Copies checkpoints: to a snapshot, also while the application runs, and from a snapshot to a new checkpoint.

A snapshot has everything that a start needs to go on after one committed micro-batch. First the files that the
application replaces or deletes with each micro-batch are read, as they are at one moment. Spark never changes the files of
states, and keeps the files of a micro-batch for a hundred further micro-batches: they are copied afterwards, and a later
snapshot in the same folder copies only new ones.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

from statefun.inspect.changing_files import ChangingFiles
from statefun.inspect.copied_files import Progress, copy_files, copy_states, write_path
from statefun.inspect.snapshot_files import (
    SNAPSHOT,
    SnapshotFacts,
    SnapshotFiles,
    claim,
    claimed_by,
    is_empty,
    missing,
    remove_others,
)
from statefun.inspect.snapshot_lock import only_snapshot
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.former_queries import (
    FORMER_QUERIES,
    add_former_query,
    former_queries,
    keep_former_queries,
)
from statefun.runtime.checkpoint.framing import damaged
from statefun.runtime.checkpoint.ingress_order import (
    INGRESSES,
    IngressOrder,
    check_format,
    check_format_in,
)
from statefun.runtime.checkpoint.lock import create_privately
from statefun.runtime.checkpoint.object_store import SCHEMES, endpoint_of
from statefun.runtime.preflight.recovery import check_logs
from statefun.runtime.spark_internals.log_files import COMMITS, METADATA, OFFSETS_FOLDER
from statefun.sdk.errors import CheckpointError, ConfigurationError


def take_snapshot(
    checkpoint: Folder, target: Folder, progress: Progress = lambda *_: None
) -> SnapshotFacts:
    """Copy the newest committed micro-batch of a checkpoint to a folder; the application may run meanwhile.

    Args:
        checkpoint: the checkpoint.
        target: an empty folder, or one that has an earlier snapshot of the checkpoint. That snapshot stays complete until
            the new one replaces it.
        progress: is called while files of states are copied.

    Raises:
        CheckpointError: if the checkpoint is empty or damaged, if the application commits too often, or if another
            command makes a snapshot in the folder.
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
    if _is_inside(target, checkpoint):
        raise ConfigurationError(
            f"{target.shown} is inside of the checkpoint: give another folder for the snapshot"
        )
    _check_owner(target, query_id)
    create_privately(target, "snapshot")
    with only_snapshot(target) as owned:
        _check_owner(owned, query_id)  # another command may have used the folder meanwhile
        return _take(checkpoint, owned, query_id, progress)


def _take(checkpoint: Folder, target: Folder, query_id: str, progress: Progress) -> SnapshotFacts:
    """Make a snapshot in a folder that this process has locked."""
    if not target.has(SNAPSHOT):
        claim(target, query_id)
    changing, states = ChangingFiles(checkpoint, target), None
    while states is None:
        captured = changing.capture()
        states = copy_states(checkpoint, target, captured.batch, progress)
    keep_former_queries(checkpoint, target)
    permanent, others = states
    files = SnapshotFiles({**captured.contents, **others}, {**captured.effects, **permanent})
    archive = files.write(target, captured.batch)
    snapshot = SnapshotFacts(captured.batch, query_id, datetime.now(timezone.utc), archive)
    snapshot.write(target)
    remove_others(target, {SNAPSHOT, FORMER_QUERIES, archive.name, *files.permanent})
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
        CheckpointError: if the snapshot is not complete, or damaged, or was replaced meanwhile.
        ConfigurationError: if the folder of the checkpoint has files, or is inside of the snapshot.
    """
    facts = SnapshotFacts.read(snapshot)
    if facts.archive is None:
        _check_loose(snapshot, facts.batch)
    files = SnapshotFiles.read(snapshot, facts)
    contents = dict(files.contents)
    ingresses = contents.pop(INGRESSES)
    check_format_in(ingresses, snapshot)
    if _is_inside(checkpoint, snapshot):
        raise ConfigurationError(
            f"{checkpoint.shown} is inside of the snapshot: give another folder for the checkpoint"
        )
    if checkpoint.names():
        raise ConfigurationError(
            f"{checkpoint.shown} has files: give an empty folder, or one that does not exist"
        )
    create_privately(checkpoint)
    # A start refuses half of a copy: one that has offsets, and not yet the commit or the file of ingresses.
    offsets = f"{OFFSETS_FOLDER}/{facts.batch}"
    write_path(checkpoint, offsets, contents.pop(offsets))
    for path, content in contents.items():
        write_path(checkpoint, path, content)
    _copy_permanent(snapshot, checkpoint, files, progress)
    with suppress(FileNotFoundError):
        checkpoint.write(FORMER_QUERIES, snapshot.read(FORMER_QUERIES))
    if may_repeat:
        query_id = _begin_anew(checkpoint)
        # A checkpoint that is restored later ends the transactions of this one; a backup may be read-only.
        with suppress(OSError):
            add_former_query(snapshot, query_id)
    checkpoint.write(INGRESSES, ingresses)
    return facts


def _check_loose(snapshot: Folder, batch: int) -> None:
    """Check the snapshot of an earlier version, which has not checked the logs before it has copied them."""
    check_format(snapshot)
    try:
        check_logs(snapshot, batch)
    except FileNotFoundError:
        raise missing(snapshot, COMMITS) from None


def _copy_permanent(
    snapshot: Folder, checkpoint: Folder, files: SnapshotFiles, progress: Progress
) -> None:
    try:
        copied = copy_files(snapshot, checkpoint, files.permanent, progress)
    except FileNotFoundError:
        gone = sorted(files.permanent.keys() - snapshot.sizes().keys())
        raise missing(snapshot, next(iter(gone), "state")) from None
    for path, size in copied.items():
        # Spark was perhaps still writing a table of later micro-batches when it was copied: a failed snapshot has the rest.
        if size < files.permanent[path]:
            problem = f"it has {size} bytes, and had {files.permanent[path]}"
            raise damaged(snapshot, path, problem)


def is_noted(snapshot: Folder, checkpoint: Folder) -> bool:
    """Return whether a snapshot has the id of a checkpoint's query, which a restore with ``may_repeat`` notes there."""
    return CommitLog(checkpoint).query_id() in former_queries(snapshot)


def _begin_anew(checkpoint: Folder) -> str:
    """Give the query of a checkpoint another id, so that its egresses begin with new markers; return the id."""
    metadata = json.loads(checkpoint.read(METADATA))
    query_id = str(uuid.uuid4())
    add_former_query(checkpoint, str(metadata["id"]))
    checkpoint.write(METADATA, json.dumps({**metadata, "id": query_id}).encode())
    return query_id


def _check_owner(target: Folder, query_id: str) -> None:
    if is_empty(target):
        return
    # An earlier version has left a snapshot that was not completed without the file that names its query.
    owner = claimed_by(target) or CommitLog(target).query_id()
    if owner != query_id:
        raise ConfigurationError(
            f"{target.shown} has other files than a snapshot of this checkpoint: give an empty folder, or one "
            "with an earlier snapshot of the same checkpoint"
        )


def _is_inside(folder: Folder, other: Folder) -> bool:
    """Return whether a folder is another one, or inside of it, however the two are named."""
    if folder.is_local and other.is_local:
        return Path(folder.location).resolve().is_relative_to(Path(other.location).resolve())
    return f"{_normal(folder)}/".startswith(f"{_normal(other)}/")


def _normal(folder: Folder) -> str:
    """Return the location of a folder in one of its forms, with the endpoint of a store that is not Amazon's.

    >>> _normal(Folder("s3a://bucket/a/../b?region=x"))
    's3://bucket/b'
    >>> _normal(Folder("s3://bucket?endpoint_override=localhost:9000&scheme=http"))
    's3:http://localhost:9000//bucket'
    """
    parts = urlsplit(folder.location)
    server = f"{parts.scheme}:"
    if parts.scheme in SCHEMES:
        server = f"s3:{endpoint_of(folder.location) or ''}".rstrip("/")
    path = posixpath.normpath(f"/{parts.path.strip('/')}").rstrip("/")
    return f"{server}//{parts.netloc}{path}"
