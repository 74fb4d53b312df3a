# SPDX-License-Identifier: Apache-2.0
"""The timing wheel: the buckets in which delayed messages wait.

A bucket is an address of a reserved type. Its state holds messages that wait for one tick. A
function that delays a message sends it to a bucket; the feedback source sends the bucket a tick
when its time has come. The driver only has to know the existing buckets: it keeps them in memory, and
in the folder ``timers`` of the checkpoint.

The wheel is hierarchical, so that the number of buckets hardly depends on how long messages wait. A
message that waits for long goes to a coarse bucket, whose tick comes somewhat before the message is due.
The bucket then sends it to a finer bucket. A wake-up may be late, so its bucket is coarse as well, and it
goes to no finer bucket.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Collection, Iterable
from datetime import datetime

from statefun.engine.address_keys import SEPARATOR
from statefun.sdk.times import from_epoch_millis

TIMERS_NAMESPACE = "statefun.timers"
BUCKET = "bucket"
CANCELLABLE = "cancellable"

LATEST = 253_370_764_800_000
"""The last moment for timers, in milliseconds since the epoch: the last year that dates have."""
_TICK = 250
"""The interval between ticks, in milliseconds: by so much a timer may be late on purpose."""
_FINENESS = 256
"""The wait of a message, divided by the longest interval between ticks of its buckets."""
_SHARDS = 8
"""The number of buckets of a tick, so that a million timers of a tick are not one state."""
_CHUNK = 1 << 50
"""Exceeds the numbers of buckets; chunk ``n`` adds ``n + 1`` times this to its bucket's."""
CHUNKS = 4096
"""The largest number of chunks of a bucket: the numbers of buckets have 63 bits."""


def bucket_for(due: int, target: bytes) -> int:
    """Return the bucket of a message; messages to one target that are due together share it.

    >>> tick_of(999), due_tick(bucket_for(1000, b"Ada")), tick_of(1000)
    (3, 4, 4)
    """
    return -(-due // _TICK) * _SHARDS + zlib.crc32(target) % _SHARDS


def bucket_before(due: int, now: int, target: bytes) -> int:
    """Return the bucket in which a message waits next: a coarse one, unless it is due soon.

    The interval between ticks of such buckets is 1/256 of the wait at most, and more than half of that: so
    there are some hundred buckets for each doubling of the wait. The bucket's tick is one or two intervals
    before the message is due, and later than ``now``.

    >>> month = 30 * 24 * 3_600_000
    >>> due_tick(bucket_before(month, 0, b"Ada")), tick_of(month)
    (10321920, 10368000)
    >>> due_tick(bucket_before(1000, 0, b"Ada"))
    4
    """
    coarse = _coarseness(due - now)
    if coarse == 1:
        return bucket_for(due, target)
    return bucket_for((tick_of(due) // coarse - 1) * coarse * _TICK, target)


def rounded_up(due: int, now: int) -> int:
    """Return ``due`` rounded up by at most 1/256 of the wait, or a tick, so that many share the time.

    >>> month = 30 * 24 * 3_600_000
    >>> rounded_up(month, 0) - month < month / 256
    True
    >>> rounded_up(1001, 0)
    1250
    """
    step = _coarseness(due - now) * _TICK
    return -(-due // step) * step


def _coarseness(wait: int) -> int:
    """Return the interval between ticks of the bucket for a message, in ticks; ``wait`` is in ms."""
    return 1 << max(1, (max(0, wait) // _TICK // _FINENESS).bit_length()) - 1


def due_tick(bucket: int) -> int:
    """Return the tick of a bucket, or of a chunk of one."""
    return bucket % _CHUNK // _SHARDS


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
    return from_epoch_millis(min(time_of(tick), LATEST))


def bucket_key(bucket: int) -> bytes:
    r"""Return the key of a bucket's address, or of a chunk of one.

    >>> bucket_key(17)
    b'17\x00statefun.timers/bucket'
    >>> bucket_key(chunk_of(17, 5))
    b'17.5\x00statefun.timers/bucket'
    """
    chunk, whole = divmod(bucket, _CHUNK)
    id_ = b"%d.%d" % (whole, chunk - 1) if chunk else b"%d" % whole
    return b"%s%s%s/%s" % (id_, SEPARATOR, TIMERS_NAMESPACE.encode(), BUCKET.encode())


def bucket_of(key: bytes) -> int:
    """Return the bucket of a key that belongs to no chunk.

    >>> bucket_of(bucket_key(17))
    17
    """
    return int(key.rpartition(SEPARATOR)[0])


def chunk_of(bucket: int, number: int) -> int:
    """Return a chunk of a bucket, which is a bucket that is due at the same tick.

    >>> due_tick(chunk_of(17, 5)) == due_tick(17)
    True
    """
    return bucket + (number + 1) * _CHUNK


def is_chunk(key: bytes) -> bool:
    """Return whether a key belongs to a chunk of a bucket.

    >>> is_chunk(bucket_key(17)), is_chunk(bucket_key(chunk_of(17, 5)))
    (False, True)
    """
    return b"." in key.rpartition(SEPARATOR)[0]


def token_key(sender: bytes, token: str) -> bytes:
    r"""Return the key of the address that keeps the message with a token of a sender's id.

    >>> token_key(b"Ada\0com.example.fns/greeter", "reminder")
    b'reminder\x00Ada\x00statefun.timers/cancellable'
    """
    id_ = sender.rpartition(SEPARATOR)[0]
    parts = (token.encode(), id_, f"{TIMERS_NAMESPACE}/{CANCELLABLE}".encode())
    return SEPARATOR.join(parts)


class PendingBuckets:
    """The buckets that may hold messages. An empty bucket ignores its tick.

    The chunks of a bucket are numbered, so the last chunk stands for all of them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        """A heap of buckets, each after the tick at which it is due."""
        self._chunks: dict[int, int] = {}
        """The number of chunks, by bucket."""

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, bucket: int) -> bool:
        chunks, whole = divmod(bucket, _CHUNK)
        return self._chunks.get(whole, -1) >= chunks

    def add(self, buckets: Iterable[int]) -> None:
        """Add buckets and chunks; a chunk adds its bucket, and all chunks before it."""
        for bucket in buckets:
            if bucket not in self:
                chunks, whole = divmod(bucket, _CHUNK)
                if whole not in self._chunks:
                    heapq.heappush(self._heap, (due_tick(whole), whole))
                self._chunks[whole] = chunks

    def next_tick(self) -> int | None:
        """Return the first tick at which a bucket is due, or None if there are no buckets."""
        return self._heap[0][0] if self._heap else None

    def due(self, tick: int) -> list[int]:
        """Return the buckets that are due by ``tick``, with all chunks, in order."""
        return sorted(
            whole + chunk * _CHUNK
            for whole in self._upto(tick)
            for chunk in range(self._chunks[whole] + 1)
        )

    def drop(self, tick: int) -> None:
        """Remove the buckets that are due by ``tick``: they have got their ticks."""
        while self._heap and self._heap[0][0] <= tick:
            del self._chunks[heapq.heappop(self._heap)[1]]

    def all(self) -> Collection[int]:
        """Return all buckets, in no order: of a bucket that has chunks, the last chunk."""
        return [whole + chunks * _CHUNK for whole, chunks in self._chunks.items()]

    def _upto(self, tick: int) -> Iterable[int]:
        """Yield the due buckets by a walk down the heap; buckets that are not due cost nothing."""
        todo = [0]
        for index in todo:
            if index < len(self._heap) and self._heap[index][0] <= tick:
                yield self._heap[index][1]
                todo += (2 * index + 1, 2 * index + 2)
