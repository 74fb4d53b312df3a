# SPDX-License-Identifier: Apache-2.0
"""The outbox: the effects of each micro-batch, on the disk before the batch is committed.

``<checkpoint>/outbox/<batch>/manifest`` makes all effects of a batch valid at once. The manifest contains
small streams of effects; large streams are files next to it, which tasks have written under names
that are unique to each attempt at the batch. A folder without a manifest is left over from a failed attempt
or from a deleted batch.

In a store, the manifest is ``manifest-<run>``, and the commit of the batch names the run whose manifest is valid: if
two drivers run a batch, neither replaces the effects of the other one, and the effects always agree with the state.

A batch is deleted when its egress records are published and its messages are delivered. A batch
whose records are published, but whose messages are not delivered, has a file ``published``. If a person has
skipped records of a batch with ``statefun outbox``, the batch has a file ``skipped``.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple

import attrs
from google.protobuf.message import DecodeError

from statefun.protocol.runtime_pb2 import EffectStream, Manifest
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.checkpoint.skips import Skips, read_skips
from statefun.sdk.errors import CheckpointError

MANIFEST = "manifest"
_PUBLISHED = "published"


def effect_stream(content: bytes, records: int, file: str = "") -> EffectStream:
    """Return the description of an effect stream whose content is in ``file``, or in the manifest itself."""
    stream = EffectStream(records=records, checksum=zlib.crc32(content))
    if file:
        stream.file = file
    else:
        stream.content = content
    return stream


@attrs.frozen
class Leftovers:
    """Committed batches of earlier runs that are not finished yet, in order."""

    unpublished: Sequence[int]
    undelivered: Sequence[int]
    """Batches whose records are published, but whose messages are not delivered yet."""


class Share(NamedTuple):
    """The records of one egress that one task has produced in one batch."""

    first: int
    """The number of the share's first record; the records of a batch for one egress are numbered from 0."""
    lane: int
    """The lane that publishes the records."""
    stream: EffectStream

    @property
    def numbers(self) -> range:
        """The numbers of the share's records; the records of a batch for one egress are numbered from 0."""
        return range(self.first, self.first + self.stream.records)


@attrs.frozen
class Staged:
    """The effects of one batch, as its manifest has them."""

    manifest: Manifest
    digest: bytes
    """The digest of the manifest, which differs between two attempts at the same batch."""
    skips: Skips = attrs.field(factory=dict)
    """The numbers of skipped records, by the id of their egress; skipped records are not published."""

    @property
    def lanes(self) -> int:
        """The number of lanes into which the egress records of the batch are divided."""
        return max(self.manifest.lanes, 1)

    @property
    def egresses(self) -> set[str]:
        """The ids of the egresses that have records in the batch."""
        return {egress for segment in self.manifest.segments for egress in segment.egress}

    def shares(self, egress: str) -> Iterator[Share]:
        """Yield the shares of an egress (the records of each task), in order."""
        first = 0
        for segment in self.manifest.segments:
            if egress in segment.egress:
                share = Share(first, segment.partition % self.lanes, segment.egress[egress])
                yield share
                first = share.numbers.stop

    def left_out(self, egress: str) -> frozenset[int]:
        """Return the numbers of an egress's skipped records, which are not published."""
        return self.skips.get(egress, frozenset())

    def total(self, egress: str) -> int:
        """Return how many records of the batch an egress publishes; skipped records do not count."""
        return sum(len(share.numbers) for share in self.shares(egress)) - len(self.left_out(egress))


def waits_for_delivery(manifest: Manifest) -> bool:
    """Return whether a batch stays in the outbox after its records are published, until a later batch has read it."""
    return has_messages(manifest) or manifest.HasField("event_times")


def is_marked(manifest: Manifest) -> bool:
    """Return whether a published batch has to be marked: it stays in the outbox, and must not be published again."""
    return waits_for_delivery(manifest) and any(segment.egress for segment in manifest.segments)


def has_messages(manifest: Manifest) -> bool:
    """Return whether the functions have sent messages to functions in a batch."""
    return any(segment.messages.records for segment in manifest.segments)


class Outbox:
    """The outbox of a checkpoint: stages, reads and deletes the effects of its batches."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child("outbox")
        self._commit_log = CommitLog(checkpoint)

    def batch_folder(self, batch: int) -> Folder:
        """Return the folder into which the tasks of ``batch`` write files with effects."""
        return self._folder.child(str(batch))

    def stage(self, manifest: Manifest) -> None:
        """Write the manifest of a batch, which makes its effects valid; they are released after the commit."""
        if self._checkpoint.is_store and manifest.run_id:
            name = f"{MANIFEST}-{manifest.run_id}"
        else:
            name = self._manifest_name(manifest.batch)
        write_framed(self._checkpoint, _path(manifest.batch, name), manifest.SerializeToString())

    def manifest(self, batch: int) -> Manifest | None:
        """Return the manifest of ``batch``; None if it is not written yet, or deleted already.

        Raises:
            CheckpointError: if the manifest is damaged.
        """
        content = self._find(batch)
        return None if content is None else content[0]

    def staged(self, batch: int) -> Staged | None:
        """Return the staged effects of ``batch``; None if it is not staged yet, or deleted already.

        Raises:
            CheckpointError: if the manifest is damaged.
        """
        content = self._find(batch)
        if content is None:
            return None
        # Records are skipped only between two runs.
        is_own = self._commit_log.is_own(batch)
        return Staged(*content, {} if is_own else read_skips(self._checkpoint, batch))

    def _find(self, batch: int) -> tuple[Manifest, bytes] | None:
        """Return a batch's manifest and its digest; None if it has no manifest."""
        try:
            path, content = self._content(batch)
        except FileNotFoundError:
            return None
        try:
            manifest = Manifest.FromString(content)
        except DecodeError as error:
            raise damaged(self._checkpoint, path, error) from error
        if manifest.batch != batch:
            raise damaged(self._checkpoint, path, f"its content is that of batch {manifest.batch}")
        return manifest, hashlib.sha256(content).digest()[:16]

    def _content(self, batch: int) -> tuple[str, bytes]:
        """Return the path and the content of a batch's manifest; raises FileNotFoundError."""
        if not self._checkpoint.is_store:
            path = _path(batch, MANIFEST)
            with suppress(FileNotFoundError):
                return path, read_framed(self._checkpoint, path)
        # On a local disk, only a checkpoint that was copied from a store has manifests of runs.
        path = _path(batch, self._manifest_name(batch))
        return path, read_framed(self._checkpoint, path)

    def open(self, batch: int, stream: EffectStream) -> BinaryIO:
        """Open one of the effect streams of ``batch`` for reading.

        Raises:
            CheckpointError: if the stream's file is missing, or its content has changed.
        """
        folder, file = self.batch_folder(batch), stream.file
        try:
            content = folder.read(file) if file else stream.content
        except FileNotFoundError:
            raise CheckpointError(
                f"{folder.shown}/{file}, which has effects of batch {batch}, is missing; restore the checkpoint from a copy"
            ) from None
        if zlib.crc32(content) != stream.checksum:
            raise damaged(
                self._checkpoint,
                _path(batch, file or self._manifest_name(batch)),
                "its content does not match its checksum",
            )
        return io.BytesIO(content)

    def mark_published(self, batch: int) -> None:
        """Mark ``batch`` as published, after all its egress records are published."""
        self.batch_folder(batch).write(_PUBLISHED, b"")

    def is_published(self, batch: int) -> bool:
        """Return whether :meth:`mark_published` has marked ``batch``."""
        return self.batch_folder(batch).has(_PUBLISHED)

    def remove(self, batch: int) -> None:
        """Delete ``batch``, its manifest first; its records must be published and its messages delivered.

        In an object store, listing a folder costs a request. So files of failed attempts by the present run, which only a
        list would find, stay until the next start.
        """
        folder = self.batch_folder(batch)
        if self._checkpoint.is_object_store and self._commit_log.is_only_own(batch):
            manifest = self.manifest(batch) or Manifest()
            folder.remove(self._manifest_name(batch))
            if any(stream.file for stream in _streams(manifest)):
                folder.remove_all()
            elif is_marked(manifest):
                folder.remove(_PUBLISHED)
            return
        folder.remove(self._manifest_name(batch))
        # Otherwise a loss of power could bring the manifest back without its records. The same is true
        # of a manifest that an earlier process has deleted just before it ended.
        with suppress(FileNotFoundError):
            folder.sync_names()
        folder.remove_all()

    def recover(self, newest_commit: int) -> Leftovers:
        """Return the unfinished batches of earlier runs, and delete the remains of finished batches.

        A batch that is staged, but not committed, is not touched: Spark runs it again, and it is staged again.
        If the earlier run still lives and commits the batch, nothing is lost.
        """
        unpublished, undelivered = [], []
        for batch in self.batches():
            folder = self.batch_folder(batch)
            if batch > newest_commit:
                continue
            if not folder.has(self._manifest_name(batch)):
                self.remove(batch)
            elif self.is_published(batch):
                undelivered.append(batch)
            else:
                unpublished.append(batch)
        return Leftovers(unpublished, undelivered)

    def forget_others(self, batch: int) -> None:
        """Delete the effects that earlier runs have staged for a batch that this run is about to commit.

        In a store this does nothing: the manifests of other runs are not valid there, and another run may
        have committed the batch meanwhile.
        """
        if not self._checkpoint.is_store:
            self.remove(batch)

    def _manifest_name(self, batch: int) -> str:
        """Return the name of the manifest that is valid for a batch, given its commit."""
        author = self._commit_log.author(batch)
        return f"{MANIFEST}-{author}" if author else MANIFEST

    def batches(self) -> list[int]:
        """Return the numbers of the batches that have a folder, in order."""
        return sorted(int(name) for name in self._folder.names() if name.isdecimal())


def _streams(manifest: Manifest) -> Iterator[EffectStream]:
    for segment in manifest.segments:
        yield segment.messages
        yield from segment.egress.values()


def _path(batch: int, file: str) -> str:
    return f"outbox/{batch}/{file}"
