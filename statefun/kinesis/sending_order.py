# SPDX-License-Identifier: Apache-2.0
"""Chooses the records to send next: of each partition key, the first record that is not confirmed.

Kinesis may write some records of a request and refuse others, in any order. So the next record of a key
is sent when the record before it is confirmed; records of other keys do not wait for it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence

from statefun.components.running import EgressRecord


class SendingOrder:
    """The records that are to be sent, or are sent and not confirmed, by their positions.

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
        """The positions of further records of each key; None for keys with one record, as most keys are."""
        self._ready: defaultdict[str, list[int]] = defaultdict(list)
        """The positions of records that may be sent, as a heap for each stream: the oldest record first."""
        self._is_confirmed = bytearray(len(records))
        self.confirmed = 0
        """How many records are confirmed, from the first record on without a gap."""
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
        """Return the positions of records of one stream to send; none if no record may be sent."""
        streams = [stream for stream in self._ready.values() if stream]
        if not streams:
            return []
        ready, positions, size = min(streams), list[int](), 0
        while ready and len(positions) < most_records:
            record = self.records[ready[0]]
            size += len(record.value or b"") + len(record.key or b"")
            if positions and size > most_bytes:
                break
            positions.append(heapq.heappop(ready))
        return positions

    def confirm(self, position: int) -> None:
        """Mark a record as written by Kinesis: the next record of its key may be sent."""
        record = self.records[position]
        if following := self._following[record.topic, record.key]:
            self.send_again(following.popleft())
        self._is_confirmed[position] = True
        while not self.is_done and self._is_confirmed[self.confirmed]:
            self.confirmed += 1

    def send_again(self, position: int) -> None:
        """Let a record be sent, such as one that was refused."""
        heapq.heappush(self._ready[self.records[position].topic], position)
