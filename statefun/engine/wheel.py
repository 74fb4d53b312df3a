# SPDX-License-Identifier: Apache-2.0
"""The timing wheel: the buckets in which delayed messages wait.

A bucket is an address of a reserved type. Its state holds messages that wait for one tick. A
function that delays a message sends it to a bucket; the feedback source sends the bucket a tick
when its time has come. The driver only has to know the existing buckets: it keeps them in memory, and
in the folder ``timers`` of the checkpoint.

The wheel is hierarchical, so that the number of buckets hardly depends on how long messages wait. A
message that waits for long goes to a coarse bucket, whose tick comes somewhat before the message is due.
At its tick, the bucket sends the message to a finer bucket. A wake-up may come late, so it goes to a coarse
bucket whose tick comes after its due time, and to no finer bucket.

The wheel has two domains: the clock, and event time. The ticks of event time come when the watermark has come to
their times, and their numbers are larger than those of all ticks of the clock. So the number of a tick or
bucket alone says to which domain it belongs.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Collection, Iterable
from datetime import datetime

from statefun.engine.address_keys import SEPARATOR
from statefun.sdk.event_fields import EARLIEST_TIME
from statefun.sdk.times import from_epoch_millis

TIMERS_NAMESPACE = "statefun.timers"
BUCKET = "bucket"
CANCELLABLE = "cancellable"

LATEST = 253_370_764_800_000
"""The latest due time, in milliseconds since the epoch: the first day of the last year of Python's dates."""
_TICK = 250
"""The interval between ticks, in milliseconds; a delayed message may be late by this interval."""
EVENT_TICKS = 1 << 46
"""The number of the first tick of event time, at ``EARLIEST_TIME``; no bucket is due at this tick."""
_FINENESS = 256
"""The shortest wait for which a coarse bucket is used, in intervals between the ticks of such buckets."""
_SHARDS = 8
"""The number of buckets with the same tick: several, so that the state of each bucket stays small."""
_CHUNK = 1 << 50
"""Added ``n + 1`` times to the number of a bucket, it gives the number of the bucket's chunk ``n``.

The numbers of buckets themselves are smaller than this."""
CHUNKS = 4096
"""The largest number of chunks of a bucket, as the numbers of buckets and chunks have 63 bits."""


def bucket_for(due: int, target: bytes) -> int:
    """Return the number of a message's bucket; messages to one target that are due at one tick share it.

    >>> tick_of(999), due_tick(bucket_for(1000, b"Ada")), tick_of(1000)
    (3, 4, 4)
    """
    return -(-due // _TICK) * _SHARDS + zlib.crc32(target) % _SHARDS


def event_bucket(due: int, now: int, target: bytes, step: int = _TICK) -> int:
    """Return the number of the bucket for a message that is due in event time.

    The watermark stops at the ticks of coarse buckets, too. Messages whose due times differ by a long step, such as
    those of windows, need no coarse buckets: they are in few buckets anyway.

    >>> bucket = event_bucket(1000, 1000, b"Ada")
    >>> time_of(due_tick(bucket)), is_of_event_time(due_tick(bucket))
    (1000, True)

    Args:
        due: the event time at which the message is due, as :func:`event_due` rounds it.
        now: the watermark.
        target: the key of the address that gets the message.
        step: by how much the due times of such messages differ, in milliseconds.
    """
    if due - now <= step * _FINENESS:
        now = due
    bucket = bucket_before(due - EARLIEST_TIME, now - EARLIEST_TIME, target)
    return bucket + EVENT_TICKS * _SHARDS


def event_due(when: int) -> int:
    """Return when a message for the event time ``when`` is due: the time of the first tick that is not earlier.

    >>> event_due(1001), event_due(1250)
    (1250, 1250)
    """
    return min(max(-(-when // _TICK) * _TICK, EARLIEST_TIME + _TICK), LATEST)


def event_tick_of(watermark: int | None) -> int:
    """Return the number of the newest tick of event time at a watermark.

    >>> time_of(event_tick_of(1249))
    1000
    """
    if watermark is None:
        return EVENT_TICKS
    return EVENT_TICKS + max(watermark - EARLIEST_TIME, 0) // _TICK


def is_of_event_time(tick: int) -> bool:
    """Return whether the tick with a number is one of event time, and not one of the clock."""
    return tick >= EVENT_TICKS


def bucket_before(due: int, now: int, target: bytes) -> int:
    """Return the number of the bucket in which a message waits next: a coarse one, unless it is due soon.

    The interval between the ticks of coarse buckets is at most 1/256 of the time until the message is due,
    and more than half of that: so there are some hundred buckets for each doubling of that time. The tick of
    the bucket is one or two intervals before the message is due, and later than ``now``.

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
    """Return a due time rounded up by at most 1/256 of the time until then, or to the next tick.

    With rounded due times, many addresses wake up at the same time.

    >>> month = 30 * 24 * 3_600_000
    >>> rounded_up(month, 0) - month < month / 256
    True
    >>> rounded_up(1001, 0)
    1250
    """
    step = _coarseness(due - now) * _TICK
    return -(-due // step) * step


def _coarseness(wait: int) -> int:
    """Return the interval between the ticks of a message's bucket, as a multiple of ``_TICK``.

    The message waits in the bucket for ``wait`` milliseconds.
    """
    return 1 << max(1, (max(0, wait) // _TICK // _FINENESS).bit_length()) - 1


def due_tick(bucket: int) -> int:
    """Return the number of the tick at which a bucket, or a chunk of a bucket, is due."""
    return bucket % _CHUNK // _SHARDS


def tick_of(now: int) -> int:
    """Return the number of the newest tick at the time ``now``; buckets up to this tick are due."""
    return now // _TICK


def time_of(tick: int) -> int:
    """Return the time of a tick, in milliseconds since the epoch."""
    if is_of_event_time(tick):
        return EARLIEST_TIME + (tick - EVENT_TICKS) * _TICK
    return tick * _TICK


def date_of(tick: int) -> datetime:
    """Return the time of a tick as a date; for a time after ``LATEST``, the date of ``LATEST``.

    >>> date_of(tick_of(1_000_000_000_000)).isoformat()
    '2001-09-09T01:46:40+00:00'
    """
    return from_epoch_millis(min(time_of(tick), LATEST))


def bucket_key(bucket: int) -> bytes:
    r"""Return the key of the address of a bucket, or of a chunk of a bucket.

    >>> bucket_key(17)
    b'17\x00statefun.timers/bucket'
    >>> bucket_key(chunk_of(17, 5))
    b'17.5\x00statefun.timers/bucket'
    """
    chunk, whole = divmod(bucket, _CHUNK)
    id_ = b"%d.%d" % (whole, chunk - 1) if chunk else b"%d" % whole
    return b"%s%s%s/%s" % (id_, SEPARATOR, TIMERS_NAMESPACE.encode(), BUCKET.encode())


def bucket_of_id(id_: str) -> int:
    """Return the number of the bucket, or of the chunk of a bucket, whose address has an id.

    >>> from statefun.engine.address_keys import address_of
    >>> bucket_of_id(address_of(bucket_key(chunk_of(17, 5))).id) == chunk_of(17, 5)
    True
    """
    whole, _, chunk = id_.partition(".")
    return chunk_of(int(whole), int(chunk)) if chunk else int(whole)


def bucket_of(key: bytes) -> int:
    """Return the number of the bucket with the address ``key``, which must not be the key of a chunk.

    >>> bucket_of(bucket_key(17))
    17
    """
    return int(key.rpartition(SEPARATOR)[0])


def chunk_of(bucket: int, number: int) -> int:
    """Return the number of a bucket's chunk, which is a bucket that is due at the same tick.

    >>> due_tick(chunk_of(17, 5)) == due_tick(17)
    True
    """
    return bucket + (number + 1) * _CHUNK


def is_chunk(key: bytes) -> bool:
    """Return whether a key is that of a chunk of a bucket.

    >>> is_chunk(bucket_key(17)), is_chunk(bucket_key(chunk_of(17, 5)))
    (False, True)
    """
    return b"." in key.rpartition(SEPARATOR)[0]


def token_key(sender: bytes, token: str) -> bytes:
    r"""Return the key of the reserved address that keeps a cancellable message until the message is due.

    >>> token_key(b"Ada\0com.example.fns/greeter", "reminder")
    b'reminder\x00Ada\x00statefun.timers/cancellable'

    Args:
        sender: the key of the address that sends the message; only the id in this key counts.
        token: the name by which the message can be cancelled.
    """
    id_ = sender.rpartition(SEPARATOR)[0]
    parts = (token.encode(), id_, f"{TIMERS_NAMESPACE}/{CANCELLABLE}".encode())
    return SEPARATOR.join(parts)


class PendingBuckets:
    """The buckets that may hold messages, as the driver knows them. An empty bucket ignores its tick.

    The chunks of a bucket are numbered without gaps, so that only their count is kept.
    """

    def __init__(self) -> None:
        self._heaps: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        """For the clock and for event time, a heap of pairs: the tick at which a bucket is due, and the number of
        the bucket."""
        self._chunks: dict[int, int] = {}
        """How many chunks each bucket has, by the number of the bucket."""

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, bucket: int) -> bool:
        chunks, whole = divmod(bucket, _CHUNK)
        return self._chunks.get(whole, -1) >= chunks

    def add(self, buckets: Iterable[int]) -> None:
        """Add buckets and chunks; a chunk also adds its bucket, and all earlier chunks of the bucket."""
        for bucket in buckets:
            if bucket not in self:
                chunks, whole = divmod(bucket, _CHUNK)
                if whole not in self._chunks:
                    tick = due_tick(whole)
                    heapq.heappush(self._heap(tick), (tick, whole))
                self._chunks[whole] = chunks

    def next_tick(self, *, of_event_time: bool = False) -> int | None:
        """Return the number of the first tick at which a bucket is due; None if there are no buckets."""
        heap = self._heaps[of_event_time]
        return heap[0][0] if heap else None

    def due(self, tick: int) -> list[int]:
        """Return the numbers of the buckets that are due by ``tick``, and of all their chunks, in order.

        Here and in :meth:`drop`, only buckets in the domain of the tick count: the clock, or event time.
        """
        return sorted(
            whole + chunk * _CHUNK
            for whole in self._upto(tick)
            for chunk in range(self._chunks[whole] + 1)
        )

    def drop(self, tick: int) -> None:
        """Remove the buckets that are due by ``tick``, as they have got their ticks."""
        heap = self._heap(tick)
        while heap and heap[0][0] <= tick:
            del self._chunks[heapq.heappop(heap)[1]]

    def all(self) -> Collection[int]:
        """Return the numbers of all buckets, in any order.

        For a bucket with chunks, the number of its last chunk stands for the bucket and all of its chunks.
        """
        return [whole + chunks * _CHUNK for whole, chunks in self._chunks.items()]

    def _upto(self, tick: int) -> Iterable[int]:
        """Yield the buckets that are due by ``tick``, in any order, without visiting all other buckets."""
        heap, todo = self._heap(tick), [0]
        for index in todo:
            if index < len(heap) and heap[index][0] <= tick:
                yield heap[index][1]
                todo += (2 * index + 1, 2 * index + 2)

    def _heap(self, tick: int) -> list[tuple[int, int]]:
        return self._heaps[is_of_event_time(tick)]
