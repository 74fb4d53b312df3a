# SPDX-License-Identifier: Apache-2.0
"""Lists records that wait in an outbox, and takes out records that cannot be published.

Listing changes nothing and needs no lock: an application that runs meanwhile may publish and delete
listed records. Taking out needs the lock. It first writes the records to a file; after they are
taken out, the next start publishes all others from its former position: records keep their
numbers, and the records that were taken out count as published.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs

from statefun.engine.sinks import EgressRecord
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder, sync_path
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.checkpoint.outbox import Outbox, Share, Staged
from statefun.runtime.checkpoint.skips import write_skips
from statefun.runtime.rows.effect_streams import read_egress_records
from statefun.sdk.errors import CheckpointError, ConfigurationError

_AT_ONCE = timedelta(0)


@attrs.frozen
class Waiting:
    """The records of one task for an egress in a batch that is not published."""

    batch: int
    is_committed: bool
    """Whether they will be published as they are; else the batch runs again and is staged anew."""
    egress: str
    share: Share
    left_out: frozenset[int]
    """The numbers of the egress's records that were taken out already."""
    _checkpoint: Folder

    def read(self) -> list[EgressRecord]:
        """Read the records; none if they were published meanwhile.

        Raises:
            CheckpointError: if they are damaged.
        """
        outbox = Outbox(self._checkpoint)
        try:
            with outbox.open(self.batch, self.share.stream) as file:
                return list(read_egress_records(file))
        except CheckpointError:
            if outbox.staged(self.batch) is None:
                return []
            raise


def waiting(checkpoint: Folder) -> Iterator[Waiting]:
    """Yield unpublished records, ordered by batch, egress and number.

    Raises:
        ConfigurationError: if there is no checkpoint.
        CheckpointError: if a manifest is damaged.
    """
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    if not log.query_id():
        raise ConfigurationError(f"there is no checkpoint at {checkpoint.shown}")
    for batch in outbox.batches():
        staged = None if outbox.is_published(batch) else outbox.staged(batch)
        if staged is not None:
            is_committed = batch <= log.newest()
            for egress in sorted(staged.egresses):
                for share in staged.shares(egress):
                    yield Waiting(
                        batch, is_committed, egress, share, staged.left_out(egress), checkpoint
                    )


def to_skip(
    checkpoint: Folder, batch: int, egress: str, numbers: Collection[int] | None
) -> frozenset[int]:
    """Select the records of a batch to take out.

    Args:
        checkpoint: the application's.
        batch: which one.
        egress: the id of the one that the records are for.
        numbers: of the records; None for all.

    Raises:
        ConfigurationError: if they are not there, or not waiting.
    """
    return _chosen(checkpoint, _staged(checkpoint, batch, egress), egress, numbers)


def skip(  # noqa: PLR0913 - it names one set of records, and where to keep them
    checkpoint: Folder,
    batch: int,
    egress: str,
    numbers: Collection[int] | None,
    save: Path,
    *,
    has_lock: bool = True,
) -> int:
    """Take records out of a batch, so that they are not published; return how many.

    Args:
        checkpoint: the application's, which does not run.
        batch: which one.
        egress: the id of the one that the records are for.
        numbers: of the records; None for all.
        save: where to keep them: a file that does not exist yet.
        has_lock: whether to make sure that no application runs with the checkpoint.

    Raises:
        ConfigurationError: if the records are not there, or not waiting, or cannot be kept.
        CheckpointError: if an application runs, or a file is damaged.
    """
    to_skip(checkpoint, batch, egress, numbers)  # before the lock creates anything there
    with checkpoint_lock(checkpoint, _AT_ONCE) if has_lock else nullcontext():
        staged = _staged(checkpoint, batch, egress)
        chosen = _chosen(checkpoint, staged, egress, numbers)
        _save(save, checkpoint, staged, egress, chosen)
        skips = {**staged.skips, egress: staged.left_out(egress) | chosen}
        write_skips(checkpoint, batch, skips)
    return len(chosen)


def _staged(checkpoint: Folder, batch: int, egress: str) -> Staged:
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    staged = None if outbox.is_published(batch) else outbox.staged(batch)
    if staged is None or egress not in staged.egresses:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown}: nothing of batch {batch} waits for egress {egress};"
            " 'statefun outbox list' names what does"
        )
    if batch > log.newest():
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown}: batch {batch} is not committed: it runs again at "
            "the next start, and may send other records then"
        )
    return staged


def _chosen(
    checkpoint: Folder, staged: Staged, egress: str, numbers: Collection[int] | None
) -> frozenset[int]:
    where = f"checkpoint {checkpoint.shown}, batch {staged.manifest.batch}, egress {egress}"
    there = {number for share in staged.shares(egress) for number in share.numbers}
    chosen = frozenset(there if numbers is None else numbers)
    if unknown := sorted(chosen - there):
        raise ConfigurationError(
            f"{where}: there is no record {unknown[0]}; they are numbered from 0 to {max(there)}"
        )
    chosen -= staged.left_out(egress)
    if not chosen:
        raise ConfigurationError(f"{where}: all of that is skipped already")
    return chosen


def _save(
    file: Path, checkpoint: Folder, staged: Staged, egress: str, chosen: frozenset[int]
) -> None:
    """Keep records in a file of this user's alone, on the disk when this returns."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be created, in which what is skipped is kept: {error.strerror}; give "
            "another file with --save"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as lines:
            for share in staged.shares(egress):
                if chosen.isdisjoint(share.numbers):
                    continue
                with Outbox(checkpoint).open(staged.manifest.batch, share.stream) as stream:
                    for number, record in enumerate(read_egress_records(stream), share.first):
                        if number in chosen:
                            line = _line(staged.manifest.batch, egress, number, record)
                            lines.write(f"{json.dumps(line)}\n")
            lines.flush()
            os.fsync(lines.fileno())
        sync_path(file.absolute().parent)
    except BaseException:
        file.unlink()
        raise


def _line(batch: int, egress: str, number: int, record: EgressRecord) -> dict[str, Any]:
    return {
        "batch": batch,
        "egress": egress,
        "record": number,
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers or ()],
    }


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()
