# SPDX-License-Identifier: Apache-2.0
"""The log of timer buckets that wait for their tick: the folder ``timers`` of the checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from contextlib import suppress

from google.protobuf.message import DecodeError

from statefun.engine.wheel import PendingBuckets
from statefun.protocol.runtime_pb2 import Manifest
from statefun.protocol.runtime_pb2 import PendingBuckets as Stored
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

_LOG_LENGTH = 100
"""The number of additions to the log after which a snapshot of all buckets replaces them."""
_SNAPSHOT = ".all"


def timer_buckets(manifest: Manifest) -> set[int]:
    """Return the timer buckets to which functions have sent messages in a batch."""
    return {bucket for segment in manifest.segments for bucket in segment.buckets}


class TimerLog:
    """The durable log of the timer buckets that wait for their tick, by the micro-batch that has added them.

    A file ``timers/<batch>`` has the buckets that a batch has added; ``timers/<batch>.all`` is a snapshot of
    all buckets, which replaces the files that exist when it is written. Readers use all files of the folder,
    whatever their numbers are: batches are added in any order, and a bucket that no longer waits does no harm.
    Only one object may write; others may read at any time, in other threads or processes.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child("timers")
        self._additions = 0

    def exists(self) -> bool:
        """Return whether the log has any file."""
        return bool(self._folder.names())

    def load(self) -> PendingBuckets:
        """Return the buckets in the log: all that wait for their tick, perhaps also some whose tick has come."""
        while True:
            try:
                return self._load()
            except FileNotFoundError:
                continue  # a snapshot has just replaced the file

    def recover(self) -> PendingBuckets:
        """Flush the log to the disk, and return its buckets; the object that writes the log calls this first.

        An earlier process may have ended after it named a file, and before the name was on the disk. A batch
        leaves the outbox when its buckets are in the log; if their file were lost, they would never get a tick.
        """
        with suppress(FileNotFoundError):
            self._folder.sync_names()
        return self.load()

    def add(self, batch: int, buckets: Collection[int], pending: PendingBuckets) -> None:
        """Write the ``buckets`` that ``batch`` has added into the log.

        Args:
            batch: the number of the batch.
            buckets: the buckets that it has added.
            pending: all buckets that wait for their tick, including ``buckets``; for a snapshot.
        """
        self._additions += 1
        if self._additions < _LOG_LENGTH:
            write_framed(self._checkpoint, _path(str(batch)), _encoded(buckets))
            return
        snapshot = f"{batch}{_SNAPSHOT}"
        old_names = self._folder.names()
        write_framed(self._checkpoint, _path(snapshot), _encoded(pending.all()))
        for name in old_names:
            # A crash may have left a snapshot of the same batch, which the new one has replaced.
            if name != snapshot:
                self._folder.remove(name)
        self._additions = 0

    def _load(self) -> PendingBuckets:
        names = self._folder.names()
        additions = [name for name in names if name.isdecimal()]
        pending = PendingBuckets()
        for name in names:
            if name.removesuffix(_SNAPSHOT).isdecimal():
                pending.add(self._read(name))
        self._additions = len(additions)
        return pending

    def _read(self, name: str) -> Iterable[int]:
        try:
            stored = Stored.FromString(read_framed(self._checkpoint, _path(name)))
        except DecodeError as error:
            raise damaged(self._checkpoint, _path(name), error) from error
        if not stored.steps:
            raise damaged(self._checkpoint, _path(name), "it is empty")
        return itertools.accumulate(stored.steps)


def _path(name: str) -> str:
    return f"timers/{name}"


def _encoded(buckets: Collection[int]) -> bytes:
    ordered = sorted(buckets)
    steps = [bucket - previous for previous, bucket in itertools.pairwise([0, *ordered])]
    return Stored(steps=steps).SerializeToString()
