# SPDX-License-Identifier: Apache-2.0
"""Chooses the records to send next: for each partition key, its first record without a confirmation.

Kinesis may write some records of a request and not others, in any order. So a record is sent only after
Kinesis has confirmed the record before it of the same key; records of other keys do not wait.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence

from statefun.components.running import EgressRecord


class SendingOrder:
    """The order in which the records of an egress are sent to Kinesis; a record is named by its position.

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
        """For each stream and key, the positions of records after the first one; None if there are none."""
        self._ready: defaultdict[str, list[int]] = defaultdict(list)
        """For each stream, a heap with the positions of the records that may be sent now."""
        self._is_confirmed = bytearray(len(records))
        self.confirmed = 0
        """How many records at the beginning of ``records`` are all confirmed."""
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
        """Return the positions of the records for the next request, all of one stream.

        The list is empty if no record may be sent before Kinesis confirms an earlier one.
        """
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
        """Mark a record as confirmed by Kinesis, so that the next record of its key may be sent."""
        record = self.records[position]
        if following := self._following[record.topic, record.key]:
            self.enqueue(following.popleft())
        self._is_confirmed[position] = True
        while not self.is_done and self._is_confirmed[self.confirmed]:
            self.confirmed += 1

    def enqueue(self, position: int) -> None:
        """Allow a record to be sent now, such as a record that Kinesis did not write."""
        heapq.heappush(self._ready[self.records[position].topic], position)
