# SPDX-License-Identifier: Apache-2.0
"""Lists records of an outbox that are not published, and removes records that cannot be published.

Listing changes nothing and needs no lock: an application that runs at the same time may publish and
delete listed records. Removing records needs the lock of the checkpoint. Removed records are first saved
in a file. They count as published, and all other records keep their numbers, so that the next start
continues to publish after the last published record.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import attrs

from statefun.engine.sinks import EgressRecord
from statefun.inspect.checkpoint_options import locked
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.local_files import sync_path
from statefun.runtime.checkpoint.outbox import Outbox, Share, Staged
from statefun.runtime.checkpoint.skips import write_skips
from statefun.sdk.errors import CheckpointError, ConfigurationError


@attrs.frozen
class UnpublishedRecords:
    """The records that one task of an unpublished micro-batch has sent to an egress."""

    batch: int
    is_committed: bool
    """Whether the micro-batch is committed.

    Records of a committed micro-batch will be published; a micro-batch that is not committed runs again
    and stages new records.
    """
    egress: str
    share: Share
    left_out: frozenset[int]
    """The numbers of the egress's records in this micro-batch that were removed."""
    _checkpoint: Folder

    def read(self) -> list[EgressRecord]:
        """Read the records from the outbox; return an empty list if a run has published them meanwhile.

        Raises:
            CheckpointError: if the file with the records is damaged.
        """
        outbox = Outbox(self._checkpoint)
        try:
            with outbox.open(self.batch, self.share.stream) as file:
                return list(_records(file))
        except CheckpointError:
            if outbox.staged(self.batch) is None:
                return []
            raise


def unpublished_records(checkpoint: Folder) -> Iterator[UnpublishedRecords]:
    """Yield the unpublished records of a checkpoint, ordered by micro-batch, egress and number.

    Raises:
        ConfigurationError: if there is no checkpoint.
        CheckpointError: if a manifest is damaged.
    """
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    if not log.query_id():
        raise missing_checkpoint(checkpoint)
    for batch in outbox.batches():
        staged = None if outbox.is_published(batch) else outbox.staged(batch)
        if staged is not None:
            is_committed = batch <= log.newest()
            for egress in sorted(staged.egresses):
                for share in staged.shares(egress):
                    yield UnpublishedRecords(
                        batch, is_committed, egress, share, staged.left_out(egress), checkpoint
                    )


def records_to_skip(
    checkpoint: Folder, batch: int, egress: str, numbers: Collection[int] | None
) -> frozenset[int]:
    """Return the numbers of the records that :func:`skip` would remove.

    Args:
        checkpoint: the checkpoint of the application.
        batch: the number of the micro-batch.
        egress: the id of the egress to which the records were sent.
        numbers: the numbers of the records; None for all records of the egress in the micro-batch.

    Raises:
        ConfigurationError: if a record does not exist, or does not wait to be published.
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
    """Remove records from an unpublished micro-batch, so that they are never published; return how many.

    Args:
        checkpoint: the checkpoint of an application that does not run.
        batch: the number of the micro-batch.
        egress: the id of the egress to which the records were sent.
        numbers: the numbers of the records; None for all records of the egress in the micro-batch.
        save: the path of a new file, in which the removed records are saved.
        has_lock: whether to lock the checkpoint, so that no application can run with it meanwhile.

    Raises:
        ConfigurationError: if a record does not exist, or does not wait to be published, or the
            records cannot be saved.
        CheckpointError: if an application runs with the checkpoint, or a file is damaged.
    """
    # Checked before the lock creates a file in the folder, which may not be a checkpoint.
    records_to_skip(checkpoint, batch, egress, numbers)
    with locked(checkpoint, has_lock=has_lock) as guarded:
        staged = _staged(checkpoint, batch, egress)
        chosen = _chosen(checkpoint, staged, egress, numbers)
        _save(save, checkpoint, staged, egress, chosen)
        skips = {**staged.skips, egress: staged.left_out(egress) | chosen}
        write_skips(guarded, batch, skips)
    return len(chosen)


def _staged(checkpoint: Folder, batch: int, egress: str) -> Staged:
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    staged = None if outbox.is_published(batch) else outbox.staged(batch)
    if staged is None or egress not in staged.egresses:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown}: batch {batch} has no records that wait for egress "
            f"{egress}; 'statefun outbox list' prints the batches and egresses with records"
        )
    if batch > log.newest():
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown}: batch {batch} is not committed: the next start runs the "
            "batch again, and it may send other records; start the application, then try again"
        )
    return staged


def _chosen(
    checkpoint: Folder, staged: Staged, egress: str, numbers: Collection[int] | None
) -> frozenset[int]:
    where = f"checkpoint {checkpoint.shown}, batch {staged.manifest.batch}, egress {egress}"
    present = {number for share in staged.shares(egress) for number in share.numbers}
    chosen = frozenset(present if numbers is None else numbers)
    if unknown := sorted(chosen - present):
        raise ConfigurationError(
            f"{where}: there is no record {unknown[0]}; the records have the numbers 0 to "
            f"{max(present)}"
        )
    chosen -= staged.left_out(egress)
    if not chosen:
        raise ConfigurationError(f"{where}: all of these records were removed already")
    return chosen


def _save(
    file: Path, checkpoint: Folder, staged: Staged, egress: str, chosen: frozenset[int]
) -> None:
    """Write records to a new file that only this user may read, and sync the file to the disk."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"the file for the removed records, {file}, cannot be created: {error.strerror}; give "
            "another file with --save"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as lines:
            for share in staged.shares(egress):
                if chosen.isdisjoint(share.numbers):
                    continue
                with Outbox(checkpoint).open(staged.manifest.batch, share.stream) as stream:
                    for number, record in enumerate(_records(stream), share.first):
                        if number in chosen:
                            line = _line(staged.manifest.batch, egress, number, record)
                            lines.write(f"{json.dumps(line)}\n")
            lines.flush()
            os.fsync(lines.fileno())
        sync_path(file.absolute().parent)
    except BaseException:
        file.unlink()
        raise


def _records(file: BinaryIO) -> Iterator[EgressRecord]:
    # It needs pyarrow, for which the help of the command would wait.
    from statefun.runtime.rows.effect_streams import read_egress_records  # noqa: PLC0415 - see above

    return read_egress_records(file)


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
