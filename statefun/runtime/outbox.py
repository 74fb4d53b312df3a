# SPDX-License-Identifier: Apache-2.0
"""The outbox: effects of each micro-batch, durable before the batch is committed.

``<checkpoint>/outbox/<batch>/manifest`` makes a batch's effects valid, all at once. It holds
small segments itself; large ones are files beside it, which tasks wrote under names that no
other attempt uses. A manifest that is there has not been published yet; a folder without one is
left over from an attempt that failed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from google.protobuf.message import DecodeError

from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.filesystem import Folder
from statefun.sdk.errors import CheckpointError

MANIFEST = "manifest"


class Outbox:
    """The staged effects below one checkpoint."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.child("outbox")

    def batch_folder(self, batch: int) -> Folder:
        """Return where tasks of ``batch`` put their segment files."""
        return self._folder.child(str(batch))

    def stage(self, batch: int, segments: Sequence[Segment], *, query_id: str, run_id: str) -> None:
        """Make the effects of ``batch`` valid; they are released when Spark commits it."""
        manifest = Manifest(batch=batch, query_id=query_id, run_id=run_id, segments=segments)
        self.batch_folder(batch).write(MANIFEST, manifest.SerializeToString())

    def manifest(self, batch: int) -> Manifest | None:
        """Return the manifest of ``batch``, or None if it has none (any more).

        Raises:
            CheckpointError: if it is damaged.
        """
        folder = self.batch_folder(batch)
        try:
            return Manifest.FromString(folder.read(MANIFEST))
        except FileNotFoundError:
            return None
        except DecodeError as error:
            raise CheckpointError(
                f"{folder.location}/{MANIFEST} is damaged ({error}); restore the checkpoint "
                "from a copy"
            ) from error

    def open_segments(self, manifest: Manifest) -> Iterator[BinaryIO]:
        """Open each segment of a batch in order."""
        folder = self.batch_folder(manifest.batch)
        for segment in manifest.segments:
            if segment.WhichOneof("location") == "content":
                yield io.BytesIO(segment.content)
            else:
                with folder.open(segment.file) as file:
                    yield file

    def remove(self, batch: int) -> None:
        """Delete ``batch``, its manifest first: from then on it counts as published."""
        folder = self.batch_folder(batch)
        folder.remove(MANIFEST)
        folder.remove_all()

    def recover(self, newest_commit: int) -> list[int]:
        """Delete what crashes have left of batches that will run again or are published.

        Returns:
            The batches that are committed and not published yet, in order.
        """
        unpublished = []
        for batch in self._batches():
            if batch <= newest_commit and self.batch_folder(batch).has(MANIFEST):
                unpublished.append(batch)
            else:
                self.remove(batch)
        return unpublished

    def _batches(self) -> list[int]:
        return sorted(int(name) for name in self._folder.names() if name.isdecimal())
