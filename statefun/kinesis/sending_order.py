# SPDX-License-Identifier: Apache-2.0
"""Which records may be sent now: of each partition key the first one that is not confirmed.

A request of Kinesis's may take some of its records and refuse others, in no order. So the next record
of a key follows when the one before is confirmed, while those of other keys go on.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence

from statefun.components.running import EgressRecord


class SendingOrder:
    """Records on their way, by their positions.

    >>> def record(key: bytes) -> EgressRecord:
    ...     return EgressRecord("counts", key, b"", None)
    >>> order = SendingOrder([record(b"Ada"), record(b"Ada"), record(b"Bob")])
    >>> order.next_request(10, 1000)
    [0, 2]
    >>> order.confirm(2)
    >>> order.confirmed
    0
    >>> order.confirm(0)
    >>> order.confirmed, order.next_request(10, 1000)
    (1, [1])
    """

    def __init__(self, records: Sequence[EgressRecord]) -> None:
        self.records = records
        self._following: dict[tuple[str, bytes | None], deque[int] | None] = {}
        """What follows the first record of each key; most keys have no more than that."""
        self._ready: defaultdict[str, list[int]] = defaultdict(list)
        """What may be sent, as a heap for each stream: the oldest records first."""
        self._is_confirmed = bytearray(len(records))
        self.confirmed = 0
        """How many records are confirmed, from the first one on without a gap."""
        for position, record in enumerate(records):
            key = record.topic, record.key
            if key not in self._following:
                self._following[key] = None
                self._ready[record.topic].append(position)
            elif following := self._following[key]:
                following.append(position)
            else:
                self._following[key] = deque([position])

    @property
    def is_done(self) -> bool:
        """Whether all records are confirmed."""
        return self.confirmed == len(self.records)

    def next_request(self, most_records: int, most_bytes: int) -> list[int]:
        """Return records of one stream to send, at least one if any may be sent."""
        streams = [stream for stream in self._ready.values() if stream]
        if not streams:
            return []
        ready, found, size = min(streams), list[int](), 0
        while ready and len(found) < most_records:
            record = self.records[ready[0]]
            size += len(record.value or b"") + len(record.key or b"")
            if found and size > most_bytes:
                break
            found.append(heapq.heappop(ready))
        return found

    def confirm(self, position: int) -> None:
        """Take note that a record is safe: the next one of its key may be sent."""
        record = self.records[position]
        if following := self._following[record.topic, record.key]:
            self.send_again(following.popleft())
        self._is_confirmed[position] = True
        while not self.is_done and self._is_confirmed[self.confirmed]:
            self.confirmed += 1

    def send_again(self, position: int) -> None:
        """Let a record be sent that was refused."""
        heapq.heappush(self._ready[self.records[position].topic], position)
