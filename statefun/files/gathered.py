# SPDX-License-Identifier: Apache-2.0
"""Records that a file egress gathers before it writes them into files.

Most micro-batches send few records. Such records are written into the marker file, together with the
marker. Each micro-batch writes the marker file anew. Once this file has enough records, they are moved
into a file of their own, called a piece. So a micro-batch costs one small write. Pieces are read once, when
the gathered records are written into files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import attrs

from statefun.components.running import EgressRecord
from statefun.files.rows import ParquetColumns

_PIECE = 256 * 1024
"""Once the records in the marker file have this size in bytes, they are moved into a piece."""


@attrs.frozen
class GatheredRecords:
    """The records of a lane that are gathered and not yet written into files."""

    pieces: int = 0
    """How many pieces hold gathered records; pieces are numbered from 0 on."""
    size: int = 0
    """The size of all gathered records as lines, in bytes."""
    rest: Sequence[tuple[str, bytes]] = ()
    """The newest records, each as topic and line: they are in the marker file, and in no piece yet."""
    columns: ParquetColumns | None = None
    """The columns of the Parquet files for these records; None if the records become JSON lines.

    The next run may have others: it writes these records as the run that has gathered them would have done."""

    def with_records(self, records: Iterable[EgressRecord]) -> GatheredRecords:
        """Return these gathered records with further records added."""
        new_lines = [(record.topic, record.value or b"") for record in records]
        size = self.size + sum(len(line) + 1 for _, line in new_lines)
        return attrs.evolve(self, size=size, rest=(*self.rest, *new_lines))

    @property
    def is_full(self) -> bool:
        """Whether the newest records, which are in the marker file, are large enough to be moved into a piece."""
        return sum(len(line) for _, line in self.rest) >= _PIECE

    def with_piece(self) -> GatheredRecords:
        """Return these gathered records with the newest ones moved from the marker file into a further piece."""
        return attrs.evolve(self, pieces=self.pieces + 1, rest=())


def encode(records: Iterable[tuple[str, bytes]]) -> bytes:
    """Encode records, given as topics and lines: first the number of lines of each topic, then the lines.

    >>> encode([("a", b"{}"), ("b", b"[]"), ("a", b"1")]).splitlines()
    [b'{"a": 2, "b": 1}', b'{}', b'1', b'[]']
    """
    lines = by_topic(records)
    head = json.dumps({topic: len(each) for topic, each in lines.items()}).encode()
    return b"".join(line + b"\n" for line in chain([head], *lines.values()))


def decode(content: bytes) -> list[tuple[str, bytes]]:
    """Decode records that :func:`encode` has encoded: topic by topic, the lines of each in their order.

    >>> decode(encode([("a", b"{}"), ("b", b"[]"), ("a", b"1")]))
    [('a', b'{}'), ('a', b'1'), ('b', b'[]')]
    """
    head, *lines = content.split(b"\n")[:-1]
    counts: dict[str, int] = json.loads(head)
    topics = (topic for topic, count in counts.items() for _ in range(count))
    return list(zip(topics, lines, strict=True))


def by_topic(records: Iterable[tuple[str, bytes]]) -> Mapping[str, Sequence[bytes]]:
    """Return the lines of records, grouped by topic; the lines of a topic keep their order."""
    lines_by_topic: defaultdict[str, list[bytes]] = defaultdict(list)
    for topic, line in records:
        lines_by_topic[topic].append(line)
    return lines_by_topic
