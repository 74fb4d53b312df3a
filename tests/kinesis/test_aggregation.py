# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinesis_server import aggregated

from statefun.kinesis.aggregation import HashRange, parts
from statefun.protocol.kinesis_aggregation_pb2 import AggregatedRecord

EVERYTHING = HashRange(0, 2**128 - 1)
RECORDS = st.lists(st.tuples(st.text(min_size=1, max_size=20), st.binary(max_size=50)), min_size=1)


def hash_of(key: str) -> int:
    """Return the hash key that Kinesis gives a partition key."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest(), "big")


@given(RECORDS)
def test_parts_come_apart_in_order(records: list[tuple[str, bytes]]) -> None:
    """Each part has its own key, whatever the key of the aggregated record is."""
    assert list(parts("any", aggregated(records), EVERYTHING)) == records


@given(st.binary())
def test_other_data_is_as_it_is(data: bytes) -> None:
    """Other data stays as it is, even if it begins as an aggregated record does."""
    assert list(parts("Ada", data, EVERYTHING)) == [("Ada", data)]
    assert list(parts("Ada", b"\xf3\x89\x9a\xc2" + data, EVERYTHING)) == [
        ("Ada", b"\xf3\x89\x9a\xc2" + data)
    ]


@given(RECORDS, st.integers(0, 2**128 - 1))
def test_parts_of_other_shards_are_left_out(records: list[tuple[str, bytes]], border: int) -> None:
    """Two shards together have each part once."""
    whole = aggregated(records)

    lower = list(parts("any", whole, HashRange(0, border)))
    upper = list(parts("any", whole, HashRange(border + 1, 2**128 - 1)))

    assert lower == [each for each in records if hash_of(each[0]) <= border]
    assert upper == [each for each in records if hash_of(each[0]) > border]


def test_explicit_hash_keys_decide() -> None:
    """An explicit hash key decides to which shard a part belongs."""
    whole = aggregated([("Ada", b"1")], hash_key=7)

    assert list(parts("any", whole, HashRange(0, 7))) == [("Ada", b"1")]
    assert list(parts("any", whole, HashRange(8, 2**128 - 1))) == []


def framed(aggregate: AggregatedRecord) -> bytes:
    """Return the data of an aggregated record."""
    message = aggregate.SerializeToString()
    return b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message, usedforsecurity=False).digest()


@pytest.mark.parametrize("index", [1, 2**31, 2**63, 2**64 - 1])
@pytest.mark.parametrize("field", ["partition_key_index", "explicit_hash_key_index"])
def test_parts_without_keys_are_no_parts(field: str, index: int) -> None:
    """A record with an index beyond its keys stays as it is, like other data that is not aggregated."""
    aggregate = AggregatedRecord(partition_key_table=["Ada"], explicit_hash_key_table=["1"])
    part = aggregate.records.add(partition_key_index=0, data=b"x")
    setattr(part, field, index)
    data = framed(aggregate)

    assert list(parts("Bob", data, EVERYTHING)) == [("Bob", data)]


@pytest.mark.parametrize(
    ("hash_key", "is_part"),
    [("-1", False), ("0", True), (str(2**128 - 1), True), (str(2**128), False), ("x", False)],
)
def test_parts_that_no_shard_can_have_are_no_parts(hash_key: str, *, is_part: bool) -> None:
    """Each shard would leave such a part to another one: the record stays as it is."""
    aggregate = AggregatedRecord(partition_key_table=["Ada"], explicit_hash_key_table=[hash_key])
    aggregate.records.add(partition_key_index=0, explicit_hash_key_index=0, data=b"x")
    data = framed(aggregate)

    assert list(parts("Bob", data, EVERYTHING)) == [("Ada", b"x") if is_part else ("Bob", data)]
