# SPDX-License-Identifier: Apache-2.0
"""Records that are gathered for files: in pieces, and at the end of a marker of progress.

Most micro-batches send little. Their records are written together with the marker, again and again,
until they are worth a piece of their own; so a micro-batch costs one small write. Pieces are read once,
when they become files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import attrs

from statefun.components.running import EgressRecord

_PIECE = 256 * 1024
"""How many bytes at the end of a marker become a piece."""


@attrs.frozen
class Gathered:
    """Records that are no files yet."""

    pieces: int = 0
    """How many pieces there are; they are numbered from 0 on."""
    size: int = 0
    """The bytes of all records."""
    rest: Sequence[tuple[str, bytes]] = ()
    """The topics and lines of the last records, which are in no piece."""

    def with_records(self, records: Iterable[EgressRecord]) -> Gathered:
        """Return these and some more."""
        added = [(record.topic, record.value or b"") for record in records]
        size = self.size + sum(len(line) + 1 for _, line in added)
        return attrs.evolve(self, size=size, rest=(*self.rest, *added))

    @property
    def is_full(self) -> bool:
        """Whether the last records are worth a piece."""
        return sum(len(line) for _, line in self.rest) >= _PIECE

    def with_piece(self) -> Gathered:
        """Return these after the last records have become a piece."""
        return attrs.evolve(self, pieces=self.pieces + 1, rest=())


def encode(records: Iterable[tuple[str, bytes]]) -> bytes:
    """Return topics and lines as bytes: how many lines each topic has, and the lines.

    >>> encode([("a", b"{}"), ("b", b"[]"), ("a", b"1")]).splitlines()
    [b'{"a": 2, "b": 1}', b'{}', b'1', b'[]']
    """
    lines = by_topic(records)
    head = json.dumps({topic: len(each) for topic, each in lines.items()}).encode()
    return b"".join(line + b"\n" for line in chain([head], *lines.values()))


def decode(content: bytes) -> list[tuple[str, bytes]]:
    """Return what :func:`encode` was given; the order is that of each topic.

    >>> decode(encode([("a", b"{}"), ("b", b"[]"), ("a", b"1")]))
    [('a', b'{}'), ('a', b'1'), ('b', b'[]')]
    """
    head, *lines = content.split(b"\n")[:-1]
    counts: dict[str, int] = json.loads(head)
    topics = (topic for topic, count in counts.items() for _ in range(count))
    return list(zip(topics, lines, strict=True))


def by_topic(records: Iterable[tuple[str, bytes]]) -> Mapping[str, Sequence[bytes]]:
    """Return the lines of each topic, in order."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for topic, line in records:
        found[topic].append(line)
    return found
