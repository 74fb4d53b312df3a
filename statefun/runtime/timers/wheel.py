# SPDX-License-Identifier: Apache-2.0
"""The timing wheel: the buckets in which delayed messages wait.

A bucket is an address of a reserved type. Its state holds the messages that become due within
one tick. A function that delays a message sends it to its bucket; the feedback source sends the
bucket a tick when its time has come. The driver only has to know the existing
buckets: it keeps them in memory, and in the folder ``timers`` of the checkpoint.
"""

from __future__ import annotations

import heapq
import itertools
import zlib
from collections.abc import Collection, Iterable
from datetime import datetime, timezone

from google.protobuf.message import DecodeError

from statefun.protocol.runtime_pb2 import Manifest
from statefun.protocol.runtime_pb2 import PendingBuckets as Stored
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.rows.envelope import SEPARATOR

NAMESPACE = "statefun.timers"
BUCKET = "bucket"
CANCELLABLE = "cancellable"
TOKENS = "tokens"
"""The type of earlier versions, with one address for all tokens of an id."""

LATEST = 253_370_764_800_000
"""The last moment for timers, in milliseconds since the epoch: the last year that dates have."""
_TICK = 250
"""Milliseconds by which a timer may be late on purpose: about a micro-batch's duration."""
_SHARDS = 8
"""The number of buckets of a tick, so that a million timers of a tick are not one state."""
PARTS = 256
"""The number of parts of a bucket that was too large for one state and was split."""
_PART = 1 << 50
"""Exceeds the numbers of whole buckets; part ``n`` adds ``n + 1`` times this to its bucket's."""
_LOG_LENGTH = 100
"""After so many additions to the log, a snapshot replaces them."""
_SNAPSHOT = ".all"


def bucket_for(due: int, target: bytes) -> int:
    """Return the bucket of a message; messages to one target that are due together share it.

    >>> tick_of(999), due_tick(bucket_for(1000, b"Ada")), tick_of(1000)
    (3, 4, 4)
    """
    return -(-due // _TICK) * _SHARDS + zlib.crc32(target) % _SHARDS


def due_tick(bucket: int) -> int:
    """Return the tick that makes a bucket's messages due."""
    return bucket % _PART // _SHARDS


def tick_of(now: int) -> int:
    """Return the newest tick; buckets up to this tick are due."""
    return now // _TICK


def time_of(tick: int) -> int:
    """Return when a tick comes, in milliseconds since the epoch."""
    return tick * _TICK


def date_of(tick: int) -> datetime:
    """Return when a tick comes, as a date; later than the last date counts as the last one.

    >>> date_of(tick_of(1_000_000_000_000)).isoformat()
    '2001-09-09T01:46:40+00:00'
    """
    return datetime.fromtimestamp(min(time_of(tick), LATEST) / 1000, timezone.utc)


def bucket_key(bucket: int) -> bytes:
    r"""Return the key of a bucket's address, or of a part of one.

    >>> bucket_key(17)
    b'17\x00statefun.timers/bucket'
    >>> bucket_key(part_bucket(17, 5))
    b'17.5\x00statefun.timers/bucket'
    """
    part, whole = divmod(bucket, _PART)
    id_ = b"%d.%d" % (whole, part - 1) if part else b"%d" % whole
    return b"%s%s%s/%s" % (id_, SEPARATOR, NAMESPACE.encode(), BUCKET.encode())


def bucket_of(key: bytes) -> int:
    """Return the bucket of an address that is not a part's.

    >>> bucket_of(bucket_key(17))
    17
    """
    return int(key.rpartition(SEPARATOR)[0])


def part_of(target: bytes, sequence: int) -> int:
    """Return the part of its bucket in which a message waits, if the bucket is split.

    Messages to one target are spread as well, since there may be any number of them; messages
    without a sequence number stay together, because nothing else keeps them in order.
    """
    return zlib.crc32(b"%s %d" % (target, sequence)) // _SHARDS % PARTS


def part_bucket(bucket: int, part: int) -> int:
    """Return a part of a bucket, which is a bucket that is due at the same tick.

    >>> due_tick(part_bucket(17, 5)) == due_tick(17)
    True
    """
    return bucket + (part + 1) * _PART


def is_part(key: bytes) -> bool:
    """Tell whether a key belongs to a part of a bucket.

    >>> is_part(bucket_key(17)), is_part(bucket_key(part_bucket(17, 5)))
    (False, True)
    """
    return b"." in key.rpartition(SEPARATOR)[0]


def token_key(sender: bytes, token: str) -> bytes:
    r"""Return the key of the address that keeps the message with a token of a sender's id.

    >>> token_key(b"Ada\0com.example.fns/greeter", "reminder")
    b'reminder\x00Ada\x00statefun.timers/cancellable'
    """
    id_ = sender.rpartition(SEPARATOR)[0]
    parts = (token.encode(), id_, f"{NAMESPACE}/{CANCELLABLE}".encode())
    return SEPARATOR.join(parts)


def tokens_key(sender: bytes) -> bytes:
    r"""Return the key of the address that kept all tokens of a sender's id in earlier versions.

    >>> tokens_key(b"Ada\0com.example.fns/greeter")
    b'Ada\x00statefun.timers/tokens'
    """
    id_ = sender.rpartition(SEPARATOR)[0]
    return SEPARATOR.join((id_, f"{NAMESPACE}/{TOKENS}".encode()))


def timer_buckets(manifest: Manifest) -> set[int]:
    """Return the buckets that messages of a batch are sent to."""
    return {bucket for segment in manifest.segments for bucket in segment.buckets}


class PendingBuckets:
    """The buckets that may hold messages. An empty bucket ignores its tick."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        """Buckets by the tick at which they are due."""
        self._members: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, buckets: Iterable[int]) -> None:
        """Add buckets; known buckets stay as they are."""
        for bucket in buckets:
            if bucket not in self._members:
                self._members.add(bucket)
                heapq.heappush(self._heap, (due_tick(bucket), bucket))

    def next_tick(self) -> int | None:
        """Return the first tick at which a bucket is due, or None if there are no buckets."""
        return self._heap[0][0] if self._heap else None

    def due(self, tick: int) -> list[int]:
        """Return the buckets that are due by ``tick``, in order."""
        return sorted(self._upto(tick))

    def drop(self, tick: int) -> None:
        """Forget the buckets that have had their tick: all up to ``tick``."""
        while self._heap and self._heap[0][0] <= tick:
            self._members.remove(heapq.heappop(self._heap)[1])

    def all(self) -> Collection[int]:
        """Return all buckets, in no order."""
        return self._members

    def _upto(self, tick: int) -> Iterable[int]:
        """Walk down the heap as far as it is due; buckets that are not due cost nothing."""
        todo = [0]
        for index in todo:
            if index < len(self._heap) and self._heap[index][0] <= tick:
                yield self._heap[index][1]
                todo += (2 * index + 1, 2 * index + 2)


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
        """Tell whether the log has any entry."""
        return bool(self._folder.names())

    def load(self) -> PendingBuckets:
        """Return the buckets in the log, which may be more than the pending ones."""
        while True:
            try:
                return self._load()
            except FileNotFoundError:
                continue  # a snapshot has just taken the file's place

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
