# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import pytest

from statefun.kinesis.aggregation import HashRange
from statefun.kinesis.shard_plan import (
    ShardKey,
    ShardPlan,
    ShardRange,
    ended_shards,
    is_all_read,
    needs_new_list,
    plan_shards,
    planned_ranges,
    reach,
    read_anew,
    reopened_shards,
    share_records,
)
from statefun.kinesis.shard_position import ShardPosition as At
from statefun.kinesis.shard_position import Shards, StreamPosition
from statefun.kinesis.shards import FetchedRecord, Shard

NEW = At()
ENDED = At("9", 9, ended=True)
OPEN = At("3", 3)
NO_PARENTS: tuple[str, ...] = ()


def listed(stream: str = "users", **parents: tuple[str, ...]) -> dict[str, Shard]:
    """Return shards as Kinesis lists them: the parents of each by its id."""
    return {id_: Shard(stream, id_, HashRange(0, 1), each) for id_, each in parents.items()}


def record(number: int, parts: int = 1) -> FetchedRecord:
    """Return a record of Kinesis with some aggregated records."""
    arrival = datetime.now(timezone.utc)
    return FetchedRecord(str(number), number, arrival, (("key", b"value"),) * parts)


def ranged(**ranges: tuple[int, int]) -> dict[str, Shard]:
    """Return a shard ``a`` as listed, and the shards that replace it, with their hash keys."""
    return {
        id_: Shard("users", id_, HashRange(*each), NO_PARENTS if id_ == "a" else ("a",))
        for id_, each in ranges.items()
    }


SPLIT = listed(a=NO_PARENTS, b=("a",), c=("a",))
MERGED = listed(a=NO_PARENTS, b=NO_PARENTS, c=("a", "b"))
GENERATIONS = listed(a=NO_PARENTS, b=("a",), c=("b",))


@pytest.mark.parametrize(
    ("shards", "before", "after", "forgotten"),
    [
        pytest.param(
            listed(a=NO_PARENTS, b=NO_PARENTS), {}, {"a": NEW, "b": NEW}, 0, id="fresh checkpoint"
        ),
        pytest.param(SPLIT, {}, {"a": NEW}, 0, id="fresh checkpoint of a split shard"),
        pytest.param(
            listed(b=("a",)), {}, {"b": NEW}, 0, id="fresh checkpoint, and the parent has expired"
        ),
        pytest.param(SPLIT, {"a": OPEN}, {"a": OPEN}, 0, id="split, and the parent is not read"),
        pytest.param(
            SPLIT, {"a": ENDED}, {"a": ENDED, "b": NEW, "c": NEW}, 0, id="split, parent is read"
        ),
        pytest.param(
            MERGED,
            {"a": ENDED, "b": OPEN},
            {"a": ENDED, "b": OPEN},
            0,
            id="merge, and one parent is not read",
        ),
        pytest.param(
            MERGED,
            {"a": ENDED, "b": ENDED},
            {"a": ENDED, "b": ENDED, "c": NEW},
            0,
            id="merge, and both parents are read",
        ),
        pytest.param(
            listed(b=NO_PARENTS, c=("a", "b")),
            {"b": ENDED},
            {"b": ENDED, "c": NEW},
            0,
            id="merge, and one parent has expired",
        ),
        pytest.param(
            GENERATIONS, {"a": ENDED}, {"a": ENDED, "b": NEW}, 0, id="one generation at a time"
        ),
        pytest.param(
            listed(b=("a",), c=("a",)),
            {"a": ENDED, "b": OPEN, "c": OPEN},
            {"b": OPEN, "c": OPEN},
            9,
            id="an ended shard that has expired is forgotten",
        ),
        pytest.param(
            listed(a=NO_PARENTS, b=NO_PARENTS),
            {"a": OPEN},
            {"a": OPEN},
            0,
            id="no other shard begins while no shard has ended",
        ),
    ],
)
def test_shards_begin_when_their_parents_have_ended(
    shards: dict[str, Shard], before: Shards, after: Shards, forgotten: int
) -> None:
    """So the records of a key keep their order across splits and merges."""
    plan = plan_shards(["users"], {"users": StreamPosition(None, before)}, {"users": shards})

    assert plan == ShardPlan({"users": StreamPosition(None, after, forgotten)}, [])
    assert plan.open_shards == {
        ("users", id_): position for id_, position in after.items() if not position.ended
    }


@pytest.mark.parametrize(
    ("before", "lost", "is_ended"),
    [
        pytest.param({"a": OPEN, "b": OPEN}, ["a"], True, id="partly read"),
        pytest.param({"a": NEW, "b": OPEN}, ["a"], True, id="nothing read"),
        pytest.param({"a": ENDED, "b": OPEN}, [], False, id="read to its end"),
    ],
)
def test_a_shard_that_is_not_listed_any_more_is_lost_unless_it_has_ended(
    before: Shards, lost: list[str], *, is_ended: bool
) -> None:
    """It counts as ended, so that the shards that replace it begin in the next micro-batch."""
    shards = {"users": listed(b=NO_PARENTS, c=("a",))}
    plan = plan_shards(["users"], {"users": StreamPosition(None, before)}, shards)
    users = plan.streams["users"]

    assert [id_ for _, id_ in plan.lost_shards] == lost
    assert ("a" in users.shards) == is_ended
    assert ("c" in users.shards) == (not is_ended)
    if is_ended:
        assert users.shards["a"].ended
        assert users.shards["a"].count == before["a"].count
        assert "c" in plan_shards(["users"], plan.streams, shards).streams["users"].shards


def test_added_streams_begin_with_the_others() -> None:
    """At the time of the ingress's beginning; streams that the ingress does not list are left out."""
    before = {
        "users": StreamPosition(7.5, {"a": OPEN}),
        "removed": StreamPosition(7.5, {"r": OPEN}),
    }
    shards = {"users": listed(a=NO_PARENTS), "added": listed("added", n=NO_PARENTS)}

    plan = plan_shards(["users", "added"], before, shards)

    assert plan.streams == {
        "users": StreamPosition(7.5, {"a": OPEN}),
        "added": StreamPosition(7.5, {"n": NEW}),
    }
    assert plan.lost_shards == []
    assert plan_shards(["added"], {}, shards).streams["added"].begin is None


@pytest.mark.parametrize(
    ("shards", "before", "needed", "ended"),
    [
        pytest.param(listed(a=NO_PARENTS), {"a": OPEN}, False, set(), id="open"),
        pytest.param(listed(a=NO_PARENTS), {"a": ENDED}, True, {"a"}, id="nothing replaces it"),
        pytest.param(SPLIT, {"a": ENDED}, False, {"a"}, id="its children are listed"),
        pytest.param({}, {"a": ENDED}, True, {"a"}, id="nothing is listed"),
        pytest.param(listed(a=NO_PARENTS), {}, False, set(), id="nothing has begun"),
    ],
)
def test_shards_are_listed_anew_when_one_has_ended_without_a_known_child(
    shards: dict[str, Shard], before: Shards, ended: set[str], *, needed: bool
) -> None:
    """And the readers of ended shards are not needed any longer."""
    streams = {"users": StreamPosition(None, before)}

    assert needs_new_list(["users"], streams, {"users": shards}) == needed
    assert ended_shards(["users"], streams) == {("users", id_) for id_ in ended}
    assert not needs_new_list(["others"], streams, {"users": shards})
    assert ended_shards(["others"], streams) == set()


CLOSED = {"a": Shard("users", "a", HashRange(0, 1), is_closed=True)}


@pytest.mark.parametrize(
    ("shards", "before", "reopened"),
    [
        pytest.param(listed(a=NO_PARENTS), {"a": ENDED}, {"a"}, id="open"),
        pytest.param(
            listed(a=NO_PARENTS, b=NO_PARENTS, c=NO_PARENTS),
            {"a": ENDED, "b": NEW, "c": NEW},
            {"a"},
            id="the shards that replaced it do so no longer",
        ),
        pytest.param(CLOSED, {"a": ENDED}, set(), id="closed, and its children are not listed yet"),
        pytest.param(SPLIT, {"a": ENDED, "b": NEW}, set(), id="replaced"),
        pytest.param({}, {"a": ENDED}, set(), id="expired"),
        pytest.param(listed(a=NO_PARENTS), {"a": OPEN}, set(), id="not ended"),
    ],
)
def test_a_shard_that_has_ended_and_is_open_belongs_to_a_new_stream(
    shards: dict[str, Shard], before: Shards, reopened: set[str]
) -> None:
    """Such a shard may be read from its beginning; the offsets of its records go on."""
    streams = {"users": StreamPosition(7.5, before, 4)}

    found = reopened_shards(["users", "others"], streams, {"users": shards})

    assert found == {("users", id_) for id_ in reopened}
    anew = {**before, **{id_: At(None, before[id_].count) for id_ in reopened}}
    assert read_anew(streams, found) == {"users": StreamPosition(7.5, anew, 4)}


class Held:
    """A reader that has fetched some records: how many parts each has."""

    def __init__(self, parts: list[int], *, after: int = 0, is_rest: bool = False) -> None:
        self._records = [record(number, each) for number, each in enumerate(parts, 1)][after:]
        self._is_rest = is_rest

    def reachable(self, start: At, limit: int) -> At:
        """Return how far a micro-batch reads."""
        return reach(self._records, start, limit, is_rest=self._is_rest)


@pytest.mark.parametrize(
    ("held", "limit", "counts"),
    [
        pytest.param([[1] * 9, [1] * 9], 10, [5, 5], id="equal shares"),
        pytest.param([[1] * 50, [], []], 12, [12, 0, 0], id="a busy shard gets what others leave"),
        pytest.param([[1] * 4, [1] * 50, [1] * 50], 12, [4, 4, 4], id="nothing is left over"),
        pytest.param([[1], [1] * 50, [1] * 50], 12, [1, 7, 4], id="the first busy shard gets it"),
        pytest.param([[1] * 5, [1], [1] * 50], 12, [5, 1, 6], id="the rest goes to the next one"),
        pytest.param([[1] * 9] * 3, 2, [1, 1, 1], id="at least one record of each shard"),
        pytest.param([[3] * 9, [3] * 9], 8, [6, 6], id="records of Kinesis are not divided"),
        pytest.param([[20], [1] * 9], 8, [20, 4], id="one record may exceed all shares"),
        pytest.param([], 5, [], id="no shards"),
    ],
)
def test_shards_share_the_records_of_a_micro_batch(
    held: list[list[int]], limit: int, counts: list[int]
) -> None:
    """Equally; what some shards leave goes to those that have more."""
    keys: list[ShardKey] = [("users", str(number)) for number in range(len(held))]
    readers = {key: Held(parts) for key, parts in zip(keys, held, strict=True)}

    ends = share_records(dict.fromkeys(keys, NEW), readers, limit)

    assert [ends[key].count for key in keys] == counts


@pytest.mark.parametrize(
    ("records", "limit", "is_rest", "end"),
    [
        pytest.param([], 5, False, At("3", 7), id="nothing fetched"),
        pytest.param([], 5, True, At("3", 7, ended=True), id="closed, and all is read"),
        pytest.param([4, 5], 5, False, At("5", 9), id="all of it"),
        pytest.param([4, 5], 2, False, At("5", 9), id="exactly the limit"),
        pytest.param([4, 5], 1, True, At("4", 8), id="closed, and a record is left"),
        pytest.param([4, 5], 2, True, At("5", 9, ended=True), id="closed, and none is left"),
        pytest.param([4, 5], 0, True, At("3", 7), id="no room"),
    ],
)
def test_a_position_moves_by_the_records_that_fit(
    records: list[int], limit: int, end: At, *, is_rest: bool
) -> None:
    """A closed shard ends with its last record."""
    start = At("3", 7)

    assert reach([record(number) for number in records], start, limit, is_rest=is_rest) == end


def test_a_plan_ends_at_the_positions_of_its_readers() -> None:
    """Shards that have ended stay where they are."""
    plan = ShardPlan({"users": StreamPosition(1.0, {"a": ENDED, "b": OPEN, "c": NEW}, 4)})

    assert plan.ending_at({("users", "b"): At("8", 8)}) == {
        "users": StreamPosition(1.0, {"a": ENDED, "b": At("8", 8), "c": NEW}, 4)
    }


@pytest.mark.parametrize(
    ("shards", "is_complete"),
    [
        pytest.param(ranged(a=(0, 9), b=(0, 4), c=(5, 9)), True, id="both"),
        pytest.param(ranged(a=(0, 9), c=(5, 9)), False, id="the second"),
        pytest.param(ranged(a=(0, 9), b=(0, 4)), False, id="the first"),
        pytest.param(ranged(a=(0, 9), b=(0, 4), c=(6, 9)), False, id="a gap"),
        pytest.param(ranged(a=(3, 9), b=(0, 12)), True, id="merged with its neighbours"),
        pytest.param(ranged(b=(0, 4)), True, id="the parent has expired"),
    ],
)
def test_shards_are_listed_anew_until_all_children_are_known(
    shards: dict[str, Shard], *, is_complete: bool
) -> None:
    """A list may have one child of two: the other one is read as soon as it is listed, also in a bounded run."""
    streams = {"users": StreamPosition(None, {"a": ENDED, "b": OPEN, "c": OPEN})}
    exhausted = {("users", "b"), ("users", "c")}

    assert needs_new_list(["users"], streams, {"users": shards}) == (not is_complete)
    assert is_all_read(["users"], streams, {"users": shards}, exhausted) == is_complete
    begun = plan_shards(
        ["users"], {"users": StreamPosition(None, {"a": ENDED})}, {"users": shards}
    ).streams
    assert {*shards} - {"a"} == {*begun["users"].shards} - {"a"}
    later = plan_shards(["users"], begun, {"users": SPLIT}).streams["users"].shards
    assert ("c" in later) == ("a" in shards)


@pytest.mark.parametrize(
    ("shards", "positions", "exhausted", "is_read"),
    [
        pytest.param(listed(a=NO_PARENTS), {"a": OPEN}, ["a"], True, id="fetched up to the bound"),
        pytest.param(listed(a=NO_PARENTS), {"a": OPEN}, [], False, id="more may be there"),
        pytest.param(
            listed(a=NO_PARENTS, b=NO_PARENTS),
            {"a": OPEN, "b": OPEN},
            ["a"],
            False,
            id="one of two",
        ),
        pytest.param(
            listed(a=NO_PARENTS), {"a": ENDED}, [], False, id="ended, and its children are unknown"
        ),
        pytest.param(
            SPLIT, {"a": ENDED, "b": OPEN, "c": OPEN}, ["b"], False, id="one child of two"
        ),
        pytest.param(
            SPLIT, {"a": ENDED, "b": OPEN, "c": OPEN}, ["b", "c"], True, id="all children"
        ),
        pytest.param({}, {"a": ENDED}, [], True, id="ended, and expired"),
    ],
)
def test_a_bounded_run_is_done_when_all_shards_are_read(
    shards: dict[str, Shard], positions: Shards, exhausted: list[str], *, is_read: bool
) -> None:
    """Also the shards that replace closed ones."""
    streams = {"users": StreamPosition(None, positions)}
    keys = {("users", id_) for id_ in exhausted}

    assert is_all_read(["users"], streams, {"users": shards}, keys) == is_read
    assert not is_all_read(["users", "added"], streams, {"users": shards}, keys)
    assert is_all_read([], streams, {"users": shards}, keys)


@pytest.mark.parametrize(
    ("before", "after", "ranges"),
    [
        pytest.param({"a": OPEN}, {"a": At("5", 5)}, [("a", OPEN, At("5", 5))], id="goes on"),
        pytest.param({"a": OPEN}, {"a": OPEN}, [], id="nothing new"),
        pytest.param({"a": OPEN}, {"a": At("3", 3, ended=True)}, [], id="an end without records"),
        pytest.param({}, {"a": At("5", 5)}, [("a", NEW, At("5", 5))], id="a shard that begins"),
        pytest.param({}, {"a": NEW}, [], id="a shard that begins without records"),
        pytest.param(
            {"a": At("9", 3)}, {"a": At("10", 4)}, [("a", At("9", 3), At("10", 4))], id="as numbers"
        ),
        pytest.param({"a": OPEN}, {}, [], id="a shard that was forgotten"),
    ],
)
def test_a_planned_micro_batch_is_the_ranges_between_two_offsets(
    before: Shards, after: Shards, ranges: list[tuple[str, At, At]]
) -> None:
    """Without those that have no records; a stream may be new."""
    ends = {"users": StreamPosition(None, after)}

    assert planned_ranges({"users": StreamPosition(None, before)}, ends) == [
        ShardRange("users", *each) for each in ranges
    ]
    assert planned_ranges({}, ends) == [
        ShardRange("users", id_, NEW, end) for id_, end in after.items() if end.number >= 0
    ]


def test_all_records_are_planned_once_across_splits_and_merges() -> None:
    """Micro-batch by micro-batch, while the shards end one after the other."""
    shards = {"users": listed(a=NO_PARENTS, b=("a",), c=("a",), d=("b", "c"))}
    lengths = {"a": 7, "b": 3, "c": 5, "d": 2}
    streams: Mapping[str, StreamPosition] = {"users": StreamPosition(None, {})}
    open_ids: list[list[str]] = []
    while plan := plan_shards(["users"], streams, shards).open_shards:
        open_ids.append([id_ for _, id_ in plan])
        readers = {
            (name, id_): Held([1] * lengths[id_], after=position.count, is_rest=True)
            for (name, id_), position in plan.items()
        }
        ends = share_records(plan, readers, 6)
        streams = plan_shards(["users"], streams, shards).ending_at(ends)

    assert {id_: each.count for id_, each in streams["users"].shards.items()} == lengths
    assert open_ids == [["a"], ["a"], ["b", "c"], ["c"], ["d"]]
