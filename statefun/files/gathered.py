# SPDX-License-Identifier: Apache-2.0
"""Records that are gathered for files: in pieces, and at the end of the marker of progress.

Most micro-batches send few records. They are written together with the marker, again with each
micro-batch, until they are enough for a piece of their own. So a micro-batch costs one small write.
Pieces are read once, when they become files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import attrs

from statefun.components.running import EgressRecord

_PIECE = 256 * 1024
"""How many bytes of records at the end of a marker become a piece."""


@attrs.frozen
class GatheredRecords:
    """The records that are not in files yet."""

    pieces: int = 0
    """How many pieces exist; they are numbered from 0 on."""
    size: int = 0
    """The size of all gathered records as lines, in bytes."""
    rest: Sequence[tuple[str, bytes]] = ()
    """The topics and lines of the last records, which are in no piece yet."""

    def with_records(self, records: Iterable[EgressRecord]) -> GatheredRecords:
        """Return these records and further ones."""
        new_lines = [(record.topic, record.value or b"") for record in records]
        size = self.size + sum(len(line) + 1 for _, line in new_lines)
        return attrs.evolve(self, size=size, rest=(*self.rest, *new_lines))

    @property
    def is_full(self) -> bool:
        """Whether the last records are enough for a piece."""
        return sum(len(line) for _, line in self.rest) >= _PIECE

    def with_piece(self) -> GatheredRecords:
        """Return the same records after the last ones have become a piece."""
        return attrs.evolve(self, pieces=self.pieces + 1, rest=())


def encode(records: Iterable[tuple[str, bytes]]) -> bytes:
    """Encode topics and lines: first how many lines each topic has, then the lines.

    >>> encode([("a", b"{}"), ("b", b"[]"), ("a", b"1")]).splitlines()
    [b'{"a": 2, "b": 1}', b'{}', b'1', b'[]']
    """
    lines = by_topic(records)
    head = json.dumps({topic: len(each) for topic, each in lines.items()}).encode()
    return b"".join(line + b"\n" for line in chain([head], *lines.values()))


def decode(content: bytes) -> list[tuple[str, bytes]]:
    """Decode topics and lines that :func:`encode` has encoded; the lines of each topic keep their order.

    >>> decode(encode([("a", b"{}"), ("b", b"[]"), ("a", b"1")]))
    [('a', b'{}'), ('a', b'1'), ('b', b'[]')]
    """
    head, *lines = content.split(b"\n")[:-1]
    counts: dict[str, int] = json.loads(head)
    topics = (topic for topic, count in counts.items() for _ in range(count))
    return list(zip(topics, lines, strict=True))


def by_topic(records: Iterable[tuple[str, bytes]]) -> Mapping[str, Sequence[bytes]]:
    """Return the lines of each topic, in order."""
    lines_by_topic: defaultdict[str, list[bytes]] = defaultdict(list)
    for topic, line in records:
        lines_by_topic[topic].append(line)
    return lines_by_topic
