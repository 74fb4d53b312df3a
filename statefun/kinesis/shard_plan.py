# SPDX-License-Identifier: Apache-2.0
"""Decides which records of streams a micro-batch reads, without requests, clocks or logs.

The functions get plain values: how far each stream is read, the shards that Kinesis lists, and the records
that readers have fetched. A shard is read only after earlier micro-batches have read its parents to their
ends: so the records of a key keep their order when shards are split or merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import attrs

from statefun.kinesis.aggregation import HashRange
from statefun.kinesis.shard_position import ShardPosition, StreamPosition
from statefun.kinesis.shards import FetchedRecord, Shard

ShardKey = tuple[str, str]
"""The name of a stream, and the id of one of its shards."""
ListedShards = Mapping[str, Mapping[str, Shard]]
"""The shards that Kinesis lists, closed ones included, by name of the stream and id of the shard."""


class ShardFetcher(Protocol):
    """Fetches the records of one shard."""

    def reachable(self, start: ShardPosition, limit: int) -> ShardPosition:
        """Return the position that a micro-batch reaches from ``start`` with at most about ``limit`` records."""


@attrs.frozen
class ShardPlan:
    """Which shards a micro-batch reads, and which shards are lost."""

    streams: Mapping[str, StreamPosition]
    """By stream, the position before the micro-batch; includes shards that the micro-batch begins to read."""
    lost_shards: Sequence[ShardKey] = ()
    """Shards with unread records that Kinesis no longer lists; in ``streams`` they count as ended."""

    @property
    def open_shards(self) -> dict[ShardKey, ShardPosition]:
        """The positions of the shards that are not read to their ends."""
        return {
            (name, id_): position
            for name, stream in self.streams.items()
            for id_, position in stream.shards.items()
            if not position.ended
        }

    def ending_at(self, ends: Mapping[ShardKey, ShardPosition]) -> dict[str, StreamPosition]:
        """Return the position of each stream after the micro-batch.

        Args:
            ends: the positions of the open shards after the micro-batch.
        """
        return {
            name: attrs.evolve(
                stream,
                shards={
                    id_: ends.get((name, id_), position) for id_, position in stream.shards.items()
                },
            )
            for name, stream in self.streams.items()
        }


def plan_shards(
    names: Iterable[str], before: Mapping[str, StreamPosition], listed_shards: ListedShards
) -> ShardPlan:
    """Plan which shards a micro-batch reads.

    Args:
        names: the streams of the ingress. A stream that has no position in ``before`` is new: it is
            read from the same time on as the other streams (``begin`` of their positions).
        before: the positions of the streams before the micro-batch.
        listed_shards: the shards that Kinesis lists.
    """
    begin = next((stream.begin for stream in before.values()), None)
    streams: dict[str, StreamPosition] = {}
    lost_shards: list[ShardKey] = []
    for name in names:
        shards = listed_shards.get(name, {})
        stream = with_next_shards(before.get(name, StreamPosition(begin, {})), shards)
        missing_ids = [
            id_
            for id_, position in stream.shards.items()
            if not position.ended and id_ not in shards
        ]
        lost_shards += [(name, id_) for id_ in missing_ids]
        ended = {id_: attrs.evolve(stream.shards[id_], ended=True) for id_ in missing_ids}
        streams[name] = attrs.evolve(stream, shards={**stream.shards, **ended})
    return ShardPlan(streams, lost_shards)


def with_next_shards(stream: StreamPosition, listed_shards: Mapping[str, Shard]) -> StreamPosition:
    """Add to a stream's position the shards that can be read now, and return the new position.

    A shard can be read once its parents are read to their ends or are no longer listed. Ended shards that
    Kinesis no longer lists are removed from the position; the number of records that were read from these
    shards is added to ``forgotten`` of the position.
    """
    if stream.shards and not _ended_shards(stream):
        return stream
    next_shards = {
        shard.id: ShardPosition()
        for shard in listed_shards.values()
        if shard.id not in stream.shards
        and all(
            stream.shards[parent].ended if parent in stream.shards else parent not in listed_shards
            for parent in shard.parents
        )
    }
    present_shards = {
        id_: position
        for id_, position in stream.shards.items()
        if not position.ended or id_ in listed_shards
    }
    forgotten = sum(
        position.count for id_, position in stream.shards.items() if id_ not in present_shards
    )
    return attrs.evolve(
        stream,
        shards={**present_shards, **next_shards},
        forgotten=stream.forgotten + forgotten,
    )


def ended_shards(names: Collection[str], streams: Mapping[str, StreamPosition]) -> set[ShardKey]:
    """Return the shards of the streams ``names`` that are read to their ends, so that they need no readers."""
    return {
        (name, id_) for name in names if name in streams for id_ in _ended_shards(streams[name])
    }


def needs_new_list(
    names: Iterable[str], streams: Mapping[str, StreamPosition], listed_shards: ListedShards
) -> bool:
    """Return whether to list shards again, because a shard has ended and the listed shards do not replace all of it."""
    return any(
        _ended_shards(streams[name]) - _replaced_shards(listed_shards.get(name, {}))
        for name in names
        if name in streams
    )


def reopened_shards(
    names: Iterable[str], streams: Mapping[str, StreamPosition], listed_shards: ListedShards
) -> set[ShardKey]:
    """Return the shards that are read to their ends, although they are listed as open.

    A closed shard is never open again. So a shard of a new stream has the id of one of a stream that was deleted,
    unless the list is older than the shard's end.
    """
    return {
        (name, id_)
        for name in names
        if name in streams
        for shards in [listed_shards.get(name, {})]
        for id_ in _ended_shards(streams[name]) - _parents(shards)
        if id_ in shards and not shards[id_].is_closed
    }


def read_anew(
    streams: Mapping[str, StreamPosition], shards: Collection[ShardKey]
) -> dict[str, StreamPosition]:
    """Return the positions of streams with those of some shards at the beginning; the offsets of records go on."""
    return {
        name: attrs.evolve(
            stream,
            shards={
                id_: ShardPosition(count=position.count) if (name, id_) in shards else position
                for id_, position in stream.shards.items()
            },
        )
        for name, stream in streams.items()
    }


def share_records(
    positions: Mapping[ShardKey, ShardPosition],
    readers: Mapping[ShardKey, ShardFetcher],
    limit: int,
) -> dict[ShardKey, ShardPosition]:
    """Decide how many records of each shard a micro-batch reads; return the positions after these records.

    Each shard has an equal share of the records. If shards have fewer records than their share, the rest
    is given to shards that have more, in the order of ``positions``.

    Args:
        positions: where the micro-batch begins in each shard.
        readers: the readers of these shards.
        limit: approximately how many records the micro-batch has at most.
    """
    share, unused = max(1, limit // max(1, len(positions))), limit
    ends: dict[ShardKey, ShardPosition] = {}
    for key, start in positions.items():
        ends[key] = readers[key].reachable(start, share)
        unused -= ends[key].count - start.count
    for key, start in positions.items():
        count = ends[key].count - start.count
        if unused > 0 and count >= share:
            ends[key] = readers[key].reachable(start, count + unused)
            unused -= ends[key].count - start.count - count
    return ends


def reach(
    records: Iterable[FetchedRecord], start: ShardPosition, limit: int, *, is_rest: bool
) -> ShardPosition:
    """Return the position after the records of a shard that fit into a micro-batch.

    Args:
        records: the fetched records after ``start``, in order. The parts of an aggregated record stay
            together, so the result may exceed the limit by the parts of one record.
        start: the position before the first record.
        limit: how many records fit.
        is_rest: whether ``records`` has all further records of the shard, because the shard is closed.
    """
    after, count = start.after, start.count
    for record in records:
        if count - start.count >= limit:
            return ShardPosition(after, count)
        after, count = record.sequence, count + len(record.parts)
    return ShardPosition(after, count, is_rest)


def is_all_read(
    names: Iterable[str],
    streams: Mapping[str, StreamPosition],
    listed_shards: ListedShards,
    exhausted: Collection[ShardKey],
) -> bool:
    """Return whether a bounded run has read all records up to its bound.

    Args:
        names: the streams of the ingress.
        streams: the positions of the streams.
        listed_shards: the shards that Kinesis lists.
        exhausted: the shards whose readers have fetched all records up to the bound.
    """
    return all(
        name in streams and _is_read(name, streams[name], listed_shards.get(name, {}), exhausted)
        for name in names
    )


class ShardRange(NamedTuple):
    """The records of one shard between two positions, which a micro-batch reads."""

    name: str
    """The name of the stream."""
    id: str
    start: ShardPosition
    end: ShardPosition


def planned_ranges(
    before: Mapping[str, StreamPosition], after: Mapping[str, StreamPosition]
) -> list[ShardRange]:
    """Return the records that a micro-batch reads, as one range for each shard that has records."""
    beginning = ShardPosition()
    ranges = [
        ShardRange(
            name, id_, before[name].shards.get(id_, beginning) if name in before else beginning, end
        )
        for name, stream in after.items()
        for id_, end in stream.shards.items()
    ]
    return [each for each in ranges if each.end.number > each.start.number]


def _ended_shards(stream: StreamPosition) -> set[str]:
    return {id_ for id_, position in stream.shards.items() if position.ended}


def _parents(listed_shards: Mapping[str, Shard]) -> set[str]:
    """Return the ids of all shards that a listed shard replaces."""
    return {parent for shard in listed_shards.values() for parent in shard.parents}


def _replaced_shards(listed_shards: Mapping[str, Shard]) -> set[str]:
    """Return the ids of the shards all of whose hash keys belong to listed children; a list may lack one of two."""
    ranges_by_parent: defaultdict[str, list[HashRange]] = defaultdict(list)
    for shard in listed_shards.values():
        for parent in shard.parents:
            ranges_by_parent[parent].append(shard.hash_keys)
    return {
        parent
        for parent, ranges in ranges_by_parent.items()
        if parent not in listed_shards or _cover(ranges, listed_shards[parent].hash_keys)
    }


def _cover(ranges: Iterable[HashRange], whole: HashRange) -> bool:
    first_missing = whole.first
    for first, last in sorted(ranges):
        if first <= first_missing:
            first_missing = max(first_missing, last + 1)
    return first_missing > whole.last


def _is_read(
    name: str,
    stream: StreamPosition,
    listed_shards: Mapping[str, Shard],
    exhausted: Collection[ShardKey],
) -> bool:
    replaced = _replaced_shards(listed_shards)
    return all(
        # An ended shard counts as read once the shards that replace it are known.
        (id_ in replaced or id_ not in listed_shards)
        if position.ended
        else (name, id_) in exhausted
        for id_, position in stream.shards.items()
    )
