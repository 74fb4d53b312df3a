# SPDX-License-Identifier: Apache-2.0
"""The log of the timer buckets that wait: the folder ``timers`` of the checkpoint."""

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
"""After so many additions to the log, a snapshot replaces them."""
_SNAPSHOT = ".all"


def timer_buckets(manifest: Manifest) -> set[int]:
    """Return the buckets that messages of a batch are sent to."""
    return {bucket for segment in manifest.segments for bucket in segment.buckets}


class TimerLog:
    """The durable log of pending buckets, by the micro-batch that added them.

    ``timers/<batch>`` has additions; ``timers/<batch>.all`` is a snapshot that replaces
    all files that exist when it is written. All remaining files count, regardless of their
    numbers: batches are added in any order, and a superfluous bucket does no harm.
    One object writes; another may read at any time, in another thread or process.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child("timers")
        self._additions = 0

    def exists(self) -> bool:
        """Return whether the log has any entry."""
        return bool(self._folder.names())

    def load(self) -> PendingBuckets:
        """Return the buckets in the log, which may be more than the pending ones."""
        while True:
            try:
                return self._load()
            except FileNotFoundError:
                continue  # a snapshot has just taken the file's place

    def recover(self) -> PendingBuckets:
        """Return the same to the one that writes, once all of it is on the disk.

        An earlier one may have ended when a file had its name, and before the disk had it: a batch
        that leaves the outbox since its buckets are logged would leave them without a tick.
        """
        with suppress(FileNotFoundError):
            self._folder.sync_names()
        return self.load()

    def add(self, batch: int, buckets: Collection[int], pending: PendingBuckets) -> None:
        """Log that ``batch`` has added ``buckets``; ``pending`` are all buckets, with these."""
        self._additions += 1
        if self._additions < _LOG_LENGTH:
            write_framed(self._checkpoint, _path(str(batch)), _encoded(buckets))
            return
        snapshot = f"{batch}{_SNAPSHOT}"
        before = self._folder.names()
        write_framed(self._checkpoint, _path(snapshot), _encoded(pending.all()))
        for name in before:
            # A crash may have left a snapshot of the same batch: the new one has taken its place.
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
    steps = [after - before for before, after in itertools.pairwise([0, *ordered])]
    return Stored(steps=steps).SerializeToString()
